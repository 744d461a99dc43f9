#include "operator/cli/checkpoints/checkpoints_command.h"

#include <charconv>
#include <functional>
#include <limits>
#include <memory>
#include <ostream>
#include <utility>

#include "operator/cli/checkpoints/commands.h"
#include "operator/cli/exit_codes.h"
#include "operator/cli/volume_path.h"
#include "trainer/checkpoint/format.h"

namespace trainyard::cli {
namespace {

// Of all commands; each uses some.
struct Flags {
  CheckpointRef ref, other;
  std::string output;
  bool json = false, boxes = false, model_only = false;
  PruneFlags prune;
  ExportFlags exports;
  ImportFlags imports;
  MergeFlags merge;
  InClusterFlags cluster;

  bool AsJson() const { return json || !output.empty(); }
  bool InCluster() const { return !cluster.job.empty(); }
};

// "200" as the name of its directory; any other text as it is.
std::string StepName(const std::string& text) {
  int64_t step = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  const bool number = error == std::errc() && end == text.data() + text.size() && step >= 0;
  return number ? checkpoint::StepDirectory(step) : text;
}

// What is wrong with a place on a volume of the job; empty: nothing.
std::string OnVolume(const std::string& place) {
  const Result<api::VolumeDirectory> parsed = ParseVolumePath(place);
  return parsed ? "" : parsed.error().message;
}

class Registrar {
 public:
  Registrar(CLI::App& app, int& exit_code, std::ostream& out, std::ostream& err, RunInPod run_in_pod)
      : parent_(app), exit_code_(exit_code), out_(out), err_(err), run_in_pod_(std::move(run_in_pod)) {}

  void All() {
    List();
    Verify();
    Show();
    Diff();
    Prune();
    Export();
    Import();
    Merge();
  }

 private:
  using Work = std::function<int(const Flags&, std::ostream& out, std::ostream& err)>;

  CLI::App* Add(const char* name, const char* what, Work work) {
    CLI::App* command = parent_.add_subcommand(name, what);
    command->add_flag("--json", flags_->json, "The answer as one JSON value");
    command->add_option("-o,--output", flags_->output, "json: the same")->check(CLI::IsMember({"json"}));
    command->callback([flags = flags_, work = std::move(work), &exit_code = exit_code_, &out = out_, &err = err_] {
      exit_code = work(*flags, out, err);
    });
    return command;
  }
  // What is wrong with the places that were named; empty: nothing.
  using Usage = std::function<std::string(const Flags&)>;
  static std::string DirectoryOrJob(const Flags& f) {
    return f.ref.path.empty() == f.InCluster() ? "" : "name a DIRECTORY, or a job with --job";
  }
  // A command on a directory, or with --job in a pod. `words`: its flags there, besides those of all.
  using Words = std::function<std::vector<std::string>(const Flags&)>;
  CLI::App* AddBoth(const char* name, const char* what, Work work, Words words, Usage usage = DirectoryOrJob) {
    CLI::App* command = Add(name, what,
                            [name, work = std::move(work), words = std::move(words), usage = std::move(usage),
                             run = run_in_pod_](const Flags& f, std::ostream& out, std::ostream& err) {
                              if (const std::string wrong = usage(f); !wrong.empty()) {
                                err << "trainyard: " << wrong << "\n";
                                return kExitBadInput;
                              }
                              if (!f.InCluster()) return work(f, out, err);
                              std::vector<std::string> there = {name};
                              for (std::string& word : words(f)) there.push_back(std::move(word));
                              if (f.ref.step) there.insert(there.end(), {"--step", std::to_string(*f.ref.step)});
                              if (f.AsJson()) there.push_back("--json");
                              return run(f.cluster, there);
                            });
    command->add_option("--job", flags_->cluster.job,
                        "Name of a TrainingJob: its checkpoints, by a pod that mounts them");
    command->add_option("-n,--namespace", flags_->cluster.ns, "Of the job");
    command->add_option("--kubeconfig", flags_->cluster.kubeconfig,
                        "Path; default: $KUBECONFIG, the pod's own, ~/.kube/config");
    command->add_option("--server", flags_->cluster.server,
                        "URL of an API server without a log-in, such as 'kubectl proxy'");
    command->add_option("--image", flags_->cluster.image,
                        "Of that pod; default: the job's, which has the program trainyard");
    command->add_option("--timeout", flags_->cluster.start_timeout_seconds, "Seconds that the pod may take to run")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    return command;
  }
  void AddOne(CLI::App* command, const char* what) {
    command->add_option("DIRECTORY", flags_->ref.path, what);
    command->add_option("--step", flags_->ref.step, "Of the checkpoints in DIRECTORY the one of this step")
        ->check(CLI::NonNegativeNumber);
  }

  void List() {
    AddBoth(
        "list", "Show the checkpoints of a job, newest first",
        [](const Flags& f, std::ostream& out, std::ostream& err) {
          return RunCheckpointsList(f.ref.path, f.AsJson(), out, err);
        },
        [](const Flags&) { return std::vector<std::string>{kDirectory}; })
        ->add_option("DIRECTORY", flags_->ref.path, "Checkpoint directory of a job");
  }
  void Verify() {
    AddOne(AddBoth(
               "verify", "Read every byte and compare it with its hash",
               [](const Flags& f, std::ostream& out, std::ostream& err) {
                 return RunCheckpointsVerify(f.ref, f.AsJson(), out, err);
               },
               [](const Flags&) { return std::vector<std::string>{kDirectory}; }),
           "One checkpoint, or the checkpoint directory of a job: all of them");
  }
  void Show() {
    CLI::App* show = AddBoth(
        "show", "Show what a checkpoint consists of and who wrote it",
        [](const Flags& f, std::ostream& out, std::ostream& err) {
          return RunCheckpointsShow(f.ref, f.boxes, f.AsJson(), out, err);
        },
        [](const Flags& f) {
          std::vector<std::string> words = {kDirectory};
          if (f.boxes) words.push_back("--boxes");
          return words;
        });
    AddOne(show, "One checkpoint, or the checkpoint directory of a job: its newest valid one");
    show->add_flag("--boxes", flags_->boxes, "Also which rank wrote which box of each tensor, and where it lies");
  }
  void Diff() {
    CLI::App* diff = AddBoth(
        "diff", "Say which tensors of two checkpoints differ, and by how much",
        [](const Flags& f, std::ostream& out, std::ostream& err) {
          return RunCheckpointsDiff(f.ref, f.other, f.model_only, f.AsJson(), out, err);
        },
        [](const Flags& f) {
          std::vector<std::string> words;
          for (const std::string& step : {f.ref.path, f.other.path})
            words.push_back(kDirectory + ("/" + StepName(step)));
          if (f.model_only) words.push_back("--weights-only");
          return words;
        },
        [](const Flags&) { return std::string(); });  // two places in either case
    diff->add_option("A", flags_->ref.path,
                     "One checkpoint, or the checkpoint directory of a job: its newest valid one; with --job a step")
        ->required();
    diff->add_option("B", flags_->other.path, "The other one")->required();
    diff->add_flag("--weights-only", flags_->model_only, "Leave out the state of the optimizer");
    diff->footer("Exit code 1 when tensors differ.");
  }
  void Prune() {
    CLI::App* prune = AddBoth(
        "prune", "Remove old checkpoints; never the newest valid one, never one that is being read",
        [](const Flags& f, std::ostream& out, std::ostream& err) {
          return RunCheckpointsPrune(f.ref.path, f.prune, f.AsJson(), out, err);
        },
        [](const Flags& f) {
          std::vector<std::string> words = {kDirectory, "--keep-last", std::to_string(f.prune.keep_last)};
          if (f.prune.keep_every > 0) {
            words.insert(words.end(), {"--keep-every", std::to_string(f.prune.keep_every)});
          }
          if (f.prune.dry_run) words.push_back("--dry-run");
          return words;
        });
    prune->add_option("DIRECTORY", flags_->ref.path, "Checkpoint directory of a job");
    const CLI::Range positive(int64_t{1}, std::numeric_limits<int64_t>::max());
    prune->add_option("--keep-last", flags_->prune.keep_last, "How many of the newest valid ones stay")
        ->required()
        ->check(positive);
    prune
        ->add_option("--keep-every", flags_->prune.keep_every,
                     "The first one at or after each multiple of this stays, too")
        ->check(positive);
    prune->add_flag("--dry-run", flags_->prune.dry_run, "Only say what would be removed");
  }
  void Export() {
    CLI::App* exports = AddBoth(
        "export", "Write a checkpoint as transformers, torch.distributed.checkpoint or PEFT reads it",
        [](const Flags& f, std::ostream& out, std::ostream& err) {
          return RunCheckpointsExport(f.ref, f.exports, f.AsJson(), out, err);
        },
        [](const Flags& f) {
          std::vector<std::string> words = {kDirectory, kOnVolume + f.ref.path, "--to", f.exports.to};
          if (f.exports.dtype != ExportFlags().dtype) words.insert(words.end(), {"--dtype", f.exports.dtype});
          if (f.exports.max_shard_size != ExportFlags().max_shard_size) {
            words.insert(words.end(), {"--max-shard-size", f.exports.max_shard_size});
          }
          return words;
        },
        [](const Flags& f) -> std::string {
          if (!f.InCluster())
            return f.exports.directory.empty() ? "name the DIRECTORY to read and the one to write" : "";
          if (!f.exports.directory.empty()) return "with --job name one place, the one to write";
          return OnVolume(f.ref.path);
        });
    AddOne(exports, "One checkpoint, or the checkpoint directory of a job: its newest valid one; not with --job");
    exports->add_option("OUT", flags_->exports.directory,
                        "Directory to write; new, or empty. With --job VOLUME:PATH, on a volume of the job");
    exports
        ->add_option("--to", flags_->exports.to,
                     "huggingface: the weights; dcp: weights and optimizer state; peft: an adapter")
        ->required()
        ->check(CLI::IsMember({"huggingface", "dcp", "peft"}));
    exports
        ->add_option("--dtype", flags_->exports.dtype,
                     "Of the weights, for huggingface and peft; unless given as imported, or float32")
        ->check(CLI::IsMember({"float32", "bfloat16", "float16"}));
    exports->add_option("--max-shard-size", flags_->exports.max_shard_size,
                        "Most weights in one file, for huggingface; unless given as imported, or 5GB");
  }
  // What is wrong with places of which each, unless empty, is on a volume of the job; empty: nothing.
  static std::string OnVolumes(const std::vector<std::string>& places) {
    for (const std::string& place : places) {
      if (std::string wrong = place.empty() ? "" : OnVolume(place); !wrong.empty()) return wrong;
    }
    return "";
  }
  void Import() {
    CLI::App* imports = AddBoth(
        "import", "Make a checkpoint of step 0 from a Hugging Face or DCP directory, or an adapter of PEFT",
        [](const Flags& f, std::ostream& out, std::ostream& err) {
          return RunCheckpointsImport(f.imports, f.ref.path, f.AsJson(), out, err);
        },
        [](const Flags& f) {
          std::vector<std::string> words = {kOnVolume + f.imports.source, kOnVolume + f.ref.path};
          if (!f.imports.config.empty()) words.insert(words.end(), {"--config", kOnVolume + f.imports.config});
          if (!f.imports.base.empty()) words.insert(words.end(), {"--base", kOnVolume + f.imports.base});
          return words;
        },
        [](const Flags& f) {
          return f.InCluster() ? OnVolumes({f.imports.source, f.ref.path, f.imports.config, f.imports.base}) : "";
        });
    imports->add_option("SOURCE", flags_->imports.source, "Directory of *.safetensors files; with --job VOLUME:PATH")
        ->required();
    imports
        ->add_option("DIRECTORY", flags_->ref.path,
                     "Checkpoint directory to make; new, or empty; with --job VOLUME:PATH")
        ->required();
    imports->add_option("--config", flags_->imports.config, "config.json of the model; that of SOURCE unless given");
    imports->add_option("--base", flags_->imports.base, "Of an adapter: the Hugging Face directory of its model");
  }
  void Merge() {
    CLI::App* merge = AddBoth(
        "merge", "Write a model with an adapter added to its weights",
        [](const Flags& f, std::ostream& out, std::ostream& err) {
          return RunCheckpointsMerge(f.ref, f.merge, f.AsJson(), out, err);
        },
        [](const Flags& f) {
          const std::string adapter = f.ref.path.empty() ? std::string(kDirectory) : kOnVolume + f.ref.path;
          return std::vector<std::string>{"--base", kOnVolume + f.merge.base,     "--adapter", adapter,
                                          "--to",   kOnVolume + f.merge.directory};
        },
        [](const Flags& f) -> std::string {
          if (f.InCluster()) return OnVolumes({f.merge.base, f.ref.path, f.merge.directory});
          return f.ref.path.empty() ? "name the adapter with --adapter" : "";
        });
    merge->add_option("--base", flags_->merge.base, "Hugging Face directory of the model; with --job VOLUME:PATH")
        ->required();
    merge->add_option(
        "--adapter", flags_->ref.path,
        "A checkpoint of an adapter, the checkpoint directory of a job, or a directory of PEFT; with --job "
        "VOLUME:PATH, or the job's own unless given");
    merge->add_option("--to", flags_->merge.directory, "Directory to write; new, or empty; with --job VOLUME:PATH")
        ->required();
    merge->add_option("--step", flags_->ref.step, "Of the checkpoints in that directory the one of this step")
        ->check(CLI::NonNegativeNumber);
  }

  CLI::App& parent_;
  int& exit_code_;
  std::ostream& out_;
  std::ostream& err_;
  const RunInPod run_in_pod_;
  const std::shared_ptr<Flags> flags_ = std::make_shared<Flags>();
};

}  // namespace

void AddCheckpointsCommand(CLI::App& app, int& exit_code, std::ostream& out, std::ostream& err, RunInPod run_in_pod) {
  CLI::App* checkpoints = app.add_subcommand("checkpoints", "Look at, compare, convert and remove checkpoints");
  checkpoints->require_subcommand(1);
  Registrar(*checkpoints, exit_code, out, err, std::move(run_in_pod)).All();
}

}  // namespace trainyard::cli
