#include "operator/cli/client_commands.h"

#include <ostream>

#include "operator/api/json.h"
#include "operator/api/names.h"
#include "operator/api/yaml.h"
#include "operator/cli/client.h"
#include "operator/cli/exit_codes.h"
#include "operator/cli/job_table.h"
#include "operator/cli/job_view.h"
#include "operator/cli/resize_verdict.h"

namespace trainyard::cli {
namespace {

using nlohmann::json;

int Report(const ClientContext& context, const Error& error) {
  context.err << "trainyard: " << error.message << "\n";
  return ExitCodeOf(error);
}

int PrintTable(const std::vector<json>& objects, bool wide, const ClientContext& context) {
  std::vector<api::TrainingJob> jobs;
  for (const json& object : objects) {
    auto job = api::JobFromJson(object);
    if (!job) return Report(context, job.error().Wrap("the answer is no job of this version"));
    jobs.push_back(*std::move(job));
  }
  context.out << JobTable(jobs, wide, context.clock.Now());
  return kExitOk;
}

// True once the job trains at the wanted size (0: the planned one), by the newest spec.
bool TrainsAt(const api::TrainingJob& job, int64_t gpus) {
  const api::JobStatus& s = job.status;
  const int64_t wanted = gpus > 0 ? gpus : s.plan ? s.plan->gpus : 0;
  if (s.phase != api::Phase::kRunning || s.stop || s.gpus != wanted || s.observed_generation < job.meta.generation) {
    return false;
  }
  return !job.spec.UsesBundledTrainer() || TrainsNow(s);
}

int Tell(const ResizeVerdict& verdict, const api::JobStatus& status, const ClientContext& context) {
  if (status.resize && status.resize->attempt == status.attempt) {
    context.out << ResizeTimes(*status.resize) << "\n";
  }
  (verdict.same ? context.out : context.err << "trainyard: ") << verdict.text << "\n";
  return verdict.same ? kExitOk : kExitJobFailed;
}

int Wait(Client& client, const ResizeFlags& flags, const ClientContext& context) {
  const TimePoint deadline = context.clock.Now() + std::chrono::seconds(flags.timeout_seconds);
  while (true) {
    auto object = client.Get(flags.name);
    if (!object)
      return Report(context, object.error().Wrap("the run ended before " + flags.name + " trained at the new size"));
    auto job = api::JobFromJson(*object);
    if (!job) return Report(context, job.error());
    const std::string phase(api::ToString(job->status.phase));
    if (api::IsTerminal(job->status.phase)) {
      context.err << "trainyard: " << flags.name << " is " << phase << "; it ended before it trained at the new size\n";
      return kExitJobFailed;
    }
    const bool trains = TrainsAt(*job, flags.gpus);
    const auto verdict = trains && flags.verify ? VerdictOf(job->status) : std::nullopt;
    if (trains && (!flags.verify || verdict)) {
      context.out << flags.name << " trains on " << job->status.gpus << " GPUs";
      if (job->status.progress && job->status.progress->resumed_from_step) {
        context.out << ", resumed from step " << *job->status.progress->resumed_from_step;
      }
      context.out << "\n";
      return verdict ? Tell(*verdict, job->status, context) : kExitOk;
    }
    if (const api::Condition* hindrance = Hindrance(*job)) {
      return Report(
          context, {ErrorCode::kResourceExhausted,
                    flags.name + " goes on with " + std::to_string(job->status.gpus) + " GPUs; " + hindrance->message});
    }
    if (context.clock.Now() >= deadline) {
      return Report(context, {ErrorCode::kDeadlineExceeded, flags.name + " does not train at the new size after " +
                                                                std::to_string(flags.timeout_seconds) + " s: " + phase +
                                                                ", " + job->status.reason});
    }
    context.pause(Milliseconds(200));
  }
}

}  // namespace

int RunGet(const GetFlags& flags, const ClientContext& context) {
  auto client = Client::Open(flags.state_dir, context.transport());
  if (!client) return Report(context, client.error());
  std::vector<json> jobs;
  if (flags.name.empty()) {
    auto list = client->List();
    if (!list) return Report(context, list.error());
    jobs = *std::move(list);
  } else {
    auto job = client->Get(flags.name);
    if (!job) return Report(context, job.error());
    jobs.push_back(*std::move(job));
  }
  if (flags.output == "table" || flags.output == "wide") return PrintTable(jobs, flags.output == "wide", context);
  json all = {{"apiVersion", "v1"}, {"kind", "List"}, {"items", jobs}};
  const json& shown = flags.name.empty() ? all : jobs.front();
  context.out << (flags.output == "json" ? shown.dump(2) + "\n" : api::ToYaml(shown));
  return kExitOk;
}

int RunResize(const ResizeFlags& flags, const ClientContext& context) {
  auto client = Client::Open(flags.state_dir, context.transport());
  if (!client) return Report(context, client.error());
  auto before = client->Get(flags.name);
  if (!before) return Report(context, before.error());
  const std::string ns = before->value("/metadata/namespace"_json_pointer, std::string("default"));
  const int64_t old_count = before->value("/spec/gpus/count"_json_pointer, int64_t{0});
  const bool ours = !before->contains("/spec/image"_json_pointer) && !before->contains("/spec/command"_json_pointer);
  if (flags.verify && !ours) {
    return Report(context,
                  {ErrorCode::kInvalidArgument,
                   "--verify: " + flags.name + " runs a program of its own, whose state nobody hashes; use --wait"});
  }
  auto after = client->Patch(ns, flags.name, {{"spec", {{"gpus", {{"count", flags.gpus}}}}}});
  if (!after) return Report(context, after.error());
  if (old_count == flags.gpus) {
    context.out << flags.name << " already asks for " << flags.gpus << " GPUs\n";
  } else {
    context.out << flags.name << ": " << (old_count == 0 ? "automatic" : std::to_string(old_count)) << " -> "
                << flags.gpus << " GPUs requested\n";
  }
  if (ours && old_count != flags.gpus && !after->contains("/spec/checkpoint"_json_pointer)) {
    context.err << "trainyard: " << flags.name << " has no spec.checkpoint, so it starts again from step 0\n";
  }
  context.out.flush();
  return flags.wait || flags.verify ? Wait(*client, flags, context) : kExitOk;
}

void AddClientCommands(CLI::App& app, int& exit_code, const ClientContext& context) {
  auto get_flags = std::make_shared<GetFlags>();
  CLI::App* get = app.add_subcommand("get", "Show the jobs of a running 'trainyard run'");
  get->add_option("NAME", get_flags->name, "Name of the job; default: all");
  get->add_option("--state-dir", get_flags->state_dir, "State directory of the run")->capture_default_str();
  get->add_option("-o,--output", get_flags->output, "table, wide, json or yaml")
      ->check(CLI::IsMember({"table", "wide", "json", "yaml"}))
      ->capture_default_str();
  get->callback([get_flags, &exit_code, &context] { exit_code = RunGet(*get_flags, context); });

  auto resize_flags = std::make_shared<ResizeFlags>();
  CLI::App* resize = app.add_subcommand("resize", "Change the number of GPUs of a running job");
  resize->add_option("NAME", resize_flags->name, "Name of the job")->required();
  resize->add_option("--gpus", resize_flags->gpus, "New number of GPUs; 0: sized from the model")->required();
  resize->add_option("--state-dir", resize_flags->state_dir, "State directory of the run")->capture_default_str();
  resize->add_flag("--wait", resize_flags->wait, "Return when the job trains at the new size");
  resize->add_flag("--verify", resize_flags->verify,
                   "Wait, and compare the hashes of the state that the ranks held when they stopped and when they had "
                   "loaded it");
  resize->add_option("--timeout", resize_flags->timeout_seconds, "Seconds that --wait and --verify wait")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  resize->callback([resize_flags, &exit_code, &context] { exit_code = RunResize(*resize_flags, context); });
}

}  // namespace trainyard::cli
