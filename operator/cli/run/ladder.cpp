#include "operator/cli/run/ladder.h"

#include <algorithm>
#include <filesystem>
#include <ostream>
#include <set>
#include <utility>

#include "operator/api/json.h"
#include "operator/api/names.h"
#include "operator/api/validation.h"
#include "operator/base/files.h"
#include "operator/cli/exit_codes.h"
#include "operator/cli/run/scaling_report.h"
#include "operator/cli/run/session.h"
#include "operator/cli/run/state_dir.h"
#include "operator/local/pod_directory.h"
#include "trainer/contract/contract.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;

std::string Count(int64_t gpus) { return std::to_string(gpus) + (gpus == 1 ? " GPU" : " GPUs"); }

// What one rung left behind.
struct Rung {
  SizeReport report;
  std::string strategy;
  int64_t micro_batch = 0;
};

Result<Rung> ReadRung(const RunSetup& setup) {
  const fs::path state = setup.cluster.state_dir;
  auto text = ReadFile(state / "jobs" / setup.job.meta.ns / (setup.job.meta.name + ".json"));
  if (!text) return Fail(text.error());
  auto job = api::JobFromJson(nlohmann::json::parse(*text, nullptr, false));
  if (!job) return Fail(job.error());
  if (!job->status.plan) return Fail(ErrorCode::kInternal, "the job ended without a plan");
  Rung rung;
  rung.strategy = job->status.plan->strategy;
  rung.micro_batch = job->status.plan->micro_batch_size;
  const local::PodDirectory pod(state, api::PodName(*job, job->status.attempt, 0));
  auto steps = ReadFile(pod.run() / contract::kStepLogFile);
  if (!steps) return Fail(steps.error());
  const int64_t micro = std::max<int64_t>(1, rung.micro_batch);
  auto report =
      ReadStepLog(*steps, setup.job.spec.gpus.count, (job->spec.training.global_batch_size + micro - 1) / micro);
  if (!report) return Fail(report.error());
  rung.report = std::move(*report);
  return rung;
}

// Runs a rung to its end without telling its story. Returns the exit code.
int Follow(const RunSetup& rung, const Interrupts& interrupts, const Console& console, Printer& printer) {
  RealClock clock;
  std::error_code ignored;  // what cannot be removed shows when it is written again
  fs::remove_all(rung.cluster.state_dir, ignored);
  auto state_dir = StateDir::Lock(rung.cluster.state_dir);
  if (!state_dir) {
    printer.Problem(state_dir.error().message);
    return kExitBadInput;
  }
  std::ostream nowhere(nullptr);
  Printer quiet({nowhere, console.err}, false, clock.Now());
  auto session = Session::Start(rung, *state_dir, 0, clock);
  if (!session) {
    printer.Problem(session.error().message);
    return kExitBadInput;
  }
  return (*session)->Follow(interrupts, quiet);
}

StoryEvent RungEvent(const Rung& rung) {
  const SizeReport& r = rung.report;
  char text[160];
  std::snprintf(text, sizeof text, "%s: %s, micro batch %lld, %.2f ms per step, %.0f tokens/s", Count(r.gpus).c_str(),
                rung.strategy.c_str(), static_cast<long long>(rung.micro_batch), r.step_seconds * 1e3,
                r.tokens_per_second);
  return {"rung",
          text,
          {{"gpus", r.gpus},
           {"strategy", rung.strategy},
           {"microBatchSize", rung.micro_batch},
           {"steps", r.steps},
           {"stepSeconds", r.step_seconds},
           {"tokensPerSecond", r.tokens_per_second},
           {"dataSeconds", r.data},
           {"computeSeconds", r.compute},
           {"communicationSeconds", r.communication},
           {"imbalanceSeconds", r.imbalance},
           {"optimizerSeconds", r.optimizer},
           {"otherSeconds", r.other}}};
}

// One line for each size above the first.
std::vector<StoryEvent> Verdicts(const std::vector<SizeReport>& sizes) {
  std::vector<StoryEvent> events;
  for (const SizeReport& here : sizes) {
    if (&here == &sizes.front()) continue;
    const Diagnosis d = Diagnose(sizes.front(), here);
    const LossComparison losses = CompareLosses(sizes.front(), here);
    const std::string what = d.text.empty() ? "the speed grows as it should" : d.text;
    events.push_back(
        {"scaling",
         Count(here.gpus) + ": " + what,
         {{"gpus", here.gpus}, {"speedUp", d.speed_up}, {"efficiency", d.efficiency}, {"advice", d.text}}});
    events.push_back({"losses",
                      Count(here.gpus) + ": losses " + losses.text,
                      {{"gpus", here.gpus},
                       {"steps", losses.steps},
                       {"firstDifference", losses.first_difference},
                       {"largestDifference", losses.largest},
                       {"partsAtStep", losses.parts}}});
  }
  return events;
}

}  // namespace

std::optional<std::string> LadderProblem(const api::Spec& spec) {
  if (!spec.UsesBundledTrainer()) {
    return "--ladder: only the bundled trainer tells where its time goes; leave out spec.image and spec.command";
  }
  if (spec.plan_only) return "--ladder: spec.planOnly is true, so nothing would run; set it to false";
  return std::nullopt;
}

RunSetup RungOf(const RunSetup& setup, const std::string& state_dir, int64_t gpus, int64_t steps,
                std::vector<std::string>& errors) {
  RunSetup rung{.job = setup.job, .cluster = setup.cluster, .checkpoints = {}};
  rung.cluster.state_dir = fs::path(state_dir) / "ladder" / std::to_string(gpus);
  rung.cluster.nodes = 1;
  rung.cluster.gpus_per_node = gpus;
  api::Spec& spec = rung.job.spec;
  spec.gpus.count = gpus;
  spec.gpus.min_count = spec.gpus.max_count = spec.gpus.per_node = 0;
  spec.checkpoint.reset();
  spec.observe = {};  // event files and timelines are of the job itself
  if (spec.data) spec.data->validation.clear();
  spec.training.evaluation.every_steps = 0;
  spec.training.steps = steps;
  api::Schedule& schedule = spec.training.schedule;
  schedule.warmup_steps = std::min(schedule.warmup_steps, steps);
  schedule.decay_steps = std::min(schedule.decay_steps, steps - schedule.warmup_steps);
  for (api::Volume& volume : spec.volumes) {
    if (volume.claim_name.empty()) continue;
    volume = {.name = volume.name, .host_path = (fs::path(state_dir) / "volumes" / volume.claim_name).string()};
  }
  for (const std::string& error : api::Validate(rung.job)) errors.push_back(Count(gpus) + ": " + error);
  return rung;
}

int RunLadder(const RunFlags& flags, const RunSetup& setup, const std::string& state_dir, const Interrupts& interrupts,
              const Console& console, Printer& printer) {
  RealClock clock;
  if (const auto problem = LadderProblem(setup.job.spec)) {
    printer.Problem(*problem);
    return kExitBadInput;
  }
  std::vector<std::string> errors;
  std::vector<RunSetup> rungs;
  std::set<int64_t> seen;
  for (const int64_t gpus : flags.ladder) {
    if (!seen.insert(gpus).second) errors.push_back("--ladder: " + std::to_string(gpus) + " is given twice");
    rungs.push_back(RungOf(setup, state_dir, gpus, flags.ladder_steps, errors));
  }
  for (const std::string& error : errors) printer.Problem(error);
  if (!errors.empty()) return kExitBadInput;
  std::vector<SizeReport> sizes;
  for (const RunSetup& rung : rungs) {
    const int64_t gpus = rung.job.spec.gpus.count;
    printer.Live(Count(gpus) + ": " + std::to_string(flags.ladder_steps) + " steps");
    if (const int code = Follow(rung, interrupts, console, printer); code != kExitOk) {
      printer.Problem(Count(gpus) + ": the ladder ends here; logs are in " + rung.cluster.state_dir.string());
      return code;
    }
    auto read = ReadRung(rung);
    if (!read) {
      printer.Problem(read.error().message);
      return kExitJobFailed;
    }
    printer.Event(RungEvent(*read), clock.Now());
    sizes.push_back(std::move(read->report));
  }
  printer.Live("");
  if (flags.output != "json") console.out << "\n" << ScalingTable(sizes) << "\n" << std::flush;
  for (const StoryEvent& event : Verdicts(sizes)) printer.Event(event, clock.Now());
  return kExitOk;
}

}  // namespace trainyard::cli
