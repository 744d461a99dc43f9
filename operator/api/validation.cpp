#include "operator/api/validation.h"

#include <algorithm>

#include "operator/api/checks.h"
#include "operator/api/names.h"
#include "operator/api/validation_checkpoint.h"
#include "operator/api/validation_model.h"
#include "operator/api/validation_pod.h"
#include "operator/api/validation_training.h"
#include "operator/api/validation_volumes.h"

namespace trainyard::api {
namespace {

// Limits equal those of crds/trainingjobs.yaml; a test holds each of them against this file.
constexpr int64_t kMaxGpus = 65'536;

void CheckBudget(Checks& c, const Budget& b) {
  c.Range("spec.budget.maxHours", b.max_hours, 0, 1e9);
  c.Range("spec.budget.maxCost", b.max_cost, 0, 1e12);
}

void CheckGpus(Checks& c, const Spec& spec) {
  const Gpus& g = spec.gpus;
  const std::string p = "spec.gpus.";
  c.Range(p + "count", g.count, 0, kMaxGpus);
  c.Range(p + "minCount", g.min_count, 0, kMaxGpus);
  c.Range(p + "maxCount", g.max_count, 0, kMaxGpus);
  c.Range(p + "perNode", g.per_node, 0, 1024);
  auto more = [&](const char* field, int64_t value, const char* bound_name, int64_t bound) {
    if (bound > 0 && value > bound) {
      c.Report(p + field, std::to_string(value) + " is more than " + bound_name + " " + std::to_string(bound));
    }
  };
  more("minCount", g.min_count, "maxCount", g.max_count);
  more("minCount", g.min_count, "count", g.count);
  more("count", g.count, "maxCount", g.max_count);
  int64_t batch = spec.training.global_batch_size;
  more("count", g.count, "spec.training.globalBatchSize", batch);
  more("minCount", g.min_count, "spec.training.globalBatchSize", batch);
  more("maxCount", g.max_count, "spec.training.globalBatchSize", batch);
  more("perNode", g.per_node, "count", g.count);
  if (g.per_node > 0 && g.count > g.per_node && g.count % g.per_node != 0) {
    c.Report(p + "count", std::to_string(g.count) + " is not divisible by perNode " + std::to_string(g.per_node) +
                              "; every node gets the same number");
  }
  const GangTopology& topology = g.topology;
  c.Length(p + "topology.level", topology.level, 63);
  if (!IsLabelValue(topology.level)) {
    c.Report(p + "topology.level", Quoted(topology.level) + " is not the name of a level such as rack");
  }
  if (topology.mode == TopologyMode::kRequired && topology.level.empty()) {
    c.Report(p + "topology.level", "is required when mode is Required");
  }
  c.Items(p + "products", g.products.size(), 32);
  std::set<std::string> seen;
  for (size_t i = 0; i < g.products.size(); ++i) {
    std::string path = At(p + "products", i);
    if (c.Required(path, g.products[i], "the short name of a GPU such as H100-SXM")) c.Length(path, g.products[i], 63);
    c.Unique(path, g.products[i], seen);
  }
}

// A scratch volume may well vanish with its pod.
void CheckOffload(Checks& c, const Spec& spec) {
  const Parallelism& p = spec.parallelism;
  const std::string path = "spec.parallelism.offloadVolume";
  if (p.offload == OffloadTo::kNvme) {
    if (spec.UsesBundledTrainer() || !p.offload_volume.empty()) NamedVolume(c, spec, path, p.offload_volume);
  } else if (!p.offload_volume.empty()) {
    c.Report(path, "has no meaning when offload is " + std::string(ToString(p.offload)) +
                       "; set offload to NVMe or leave it out");
  }
}

template <typename File>
void CheckFiles(Checks& c, const Spec& spec, const std::string& list, const std::vector<File>& files) {
  c.Items(list, files.size(), 256);
  for (size_t i = 0; i < files.size(); ++i) {
    std::string p = At(list, i);
    CheckVolumeUse(c, spec, p + ".volume", files[i].volume);
    if (c.Required(p + ".path", files[i].path, "a file in the volume")) c.RelativePath(p + ".path", files[i].path);
  }
}

// A prompt is written at evaluations, and in tokens.
void CheckSampleFits(Checks& c, const Spec& spec) {
  if (!spec.training.evaluation.sample) return;
  const std::string p = "spec.training.evaluation.sample";
  if (!spec.UsesBundledTrainer()) {
    c.Report(p, "needs the bundled trainer: a program of your own writes its samples itself");
  } else if (spec.data && spec.data->validation.empty()) {
    c.Report(p, "needs spec.data.validation: samples are written at evaluations");
  } else if (spec.data && spec.data->format != DataFormat::kText && !spec.model.pretrained) {
    c.Report(p, "needs spec.model.pretrained, whose tokenizer reads the prompt; without it data.format must be Text");
  }
}

void CheckData(Checks& c, const Spec& spec) {
  CheckSampleFits(c, spec);
  if (spec.data) {
    if (spec.data->train.empty()) c.Report("spec.data.train", "is required: at least one file");
    CheckFiles(c, spec, "spec.data.train", spec.data->train);
    CheckFiles(c, spec, "spec.data.validation", spec.data->validation);
    for (size_t i = 0; i < spec.data->train.size(); ++i) {
      const auto& weight = spec.data->train[i].weight;
      if (weight) c.Range(At("spec.data.train", i) + ".weight", *weight, 0, 1'000'000, true);
    }
    if (const auto& separator = spec.data->document_separator) {
      c.Range("spec.data.documentSeparator", *separator, 0, 16'777'215);
      const int64_t text = spec.data->format == DataFormat::kText ? 256 : 0;
      const int64_t vocab = spec.model.architecture && spec.model.architecture->vocab_size > 0
                                ? spec.model.architecture->vocab_size
                                : text;
      if (vocab > 0 && *separator >= vocab) {
        c.Report("spec.data.documentSeparator", std::to_string(*separator) + " is not a token of a vocabulary of " +
                                                    std::to_string(vocab) + ", which ends with " +
                                                    std::to_string(vocab - 1));
      }
    }
    if (spec.training.evaluation.every_steps > 0 && spec.data->validation.empty() && spec.UsesBundledTrainer()) {
      c.Report("spec.data.validation", "is required when spec.training.evaluation.everySteps is set");
    }
  } else if (spec.UsesBundledTrainer()) {
    c.Report("spec.data", "is required, since the bundled trainer must have something to train on");
  }
}

void CheckObserve(Checks& c, const Spec& spec) {
  if (const auto& board = spec.observe.tensor_board) {
    CheckDirectory(c, spec, "spec.observe.tensorBoard", board->volume, board->path);
  }
  const auto& profile = spec.observe.profile;
  if (!profile) return;
  const std::string p = "spec.observe.profile";
  c.Range(p + ".fromStep", profile->from_step, 1, kMaxSteps);
  c.Range(p + ".steps", profile->steps, 1, 10'000);
  if (!profile->volume.empty() || !profile->path.empty()) CheckDirectory(c, spec, p, profile->volume, profile->path);
}

void CheckProgram(Checks& c, const Spec& spec) {
  c.Length("spec.image", spec.image, 1024);
  if (spec.image.find_first_of(" \t\n\r\f") != std::string::npos) {
    c.Report("spec.image", Quoted(spec.image) + " contains white space");
  }
  if (!spec.UsesBundledTrainer() && spec.parallelism.strategy == Strategy::kAuto) {
    c.Report("spec.parallelism.strategy",
             "is required with an image or command of your own, since only you know what your program does; one of "
             "DDP, ZeRO1, ZeRO2, FSDP, HSDP");
  }
  if (spec.UsesBundledTrainer() && !spec.args.empty()) {
    c.Report("spec.args", "has no meaning without image or command; the bundled trainer takes no arguments");
  }
  auto texts = [&](const char* path, const std::vector<std::string>& list) {
    c.Items(path, list.size(), 256);
    for (size_t i = 0; i < list.size(); ++i) c.Length(At(path, i), list[i], 32'768);
  };
  texts("spec.command", spec.command);
  texts("spec.args", spec.args);
  c.Items("spec.env", spec.env.size(), 256);
  std::set<std::string> seen;
  for (size_t i = 0; i < spec.env.size(); ++i) {
    const EnvVar& env = spec.env[i];
    std::string p = At("spec.env", i);
    if (c.Required(p + ".name", env.name, "the name of an environment variable")) {
      c.Length(p + ".name", env.name, 256);
      bool good = !(env.name[0] >= '0' && env.name[0] <= '9') &&
                  std::all_of(env.name.begin(), env.name.end(),
                              [](unsigned char ch) { return std::isalnum(ch) || ch == '_' || ch == '.' || ch == '-'; });
      if (!good) c.Report(p + ".name", Quoted(env.name) + " may hold letters, digits, '_', '.', '-', no digit first");
    }
    c.Length(p + ".value", env.value, 32'768);
    c.Unique(p + ".name", env.name, seen);
  }
}

void CheckManagedBy(Checks& c, const std::string& managed_by) {
  if (managed_by.empty()) return;
  c.Length("spec.managedBy", managed_by, 63);
  if (managed_by.find('/') == std::string::npos || !IsQualifiedName(managed_by)) {
    c.Report("spec.managedBy", Quoted(managed_by) + " is not a path with a domain such as example.com/controller");
  }
}

void CheckPriorityClass(Checks& c, const std::string& name) {
  c.Length("spec.priorityClassName", name, 253);
  if (!name.empty() && !IsDnsSubdomain(name)) {
    c.Report("spec.priorityClassName", Quoted(name) + " is not a DNS name");
  }
}

void CheckMeta(Checks& c, const Meta& meta) {
  if (c.Required("metadata.name", meta.name, "a DNS label such as tiny-llama") &&
      !IsDnsLabel(meta.name, kMaxNameLength)) {
    c.Report("metadata.name", Quoted(meta.name) + " is not a DNS label of at most " + std::to_string(kMaxNameLength) +
                                  " lower-case letters, digits and '-', not at the ends");
  }
  if (!IsDnsLabel(meta.ns)) c.Report("metadata.namespace", Quoted(meta.ns) + " is not a DNS label");
}

}  // namespace

std::vector<std::string> Validate(const TrainingJob& job) {
  Checks c;
  CheckMeta(c, job.meta);
  CheckModel(c, job.spec);
  CheckData(c, job.spec);
  CheckTraining(c, job.spec.training);
  CheckGpus(c, job.spec);
  CheckBudget(c, job.spec.budget);
  CheckOffload(c, job.spec);
  CheckObserve(c, job.spec);
  CheckCheckpoint(c, job);
  c.Range("spec.recovery.maxRestarts.user", job.spec.recovery.max_user_restarts, 0, 1'000'000);
  c.Range("spec.recovery.maxRestarts.infrastructure", job.spec.recovery.max_infrastructure_restarts, 0, 1'000'000);
  c.Range("spec.recovery.maxGraceSeconds", job.spec.recovery.max_grace_seconds, 1, 86'400);
  CheckManagedBy(c, job.spec.managed_by);
  CheckPriorityClass(c, job.spec.priority_class_name);
  CheckProgram(c, job.spec);
  CheckVolumes(c, job.spec.volumes);
  CheckPodTemplate(c, job.spec);
  return c.Take();
}

}  // namespace trainyard::api
