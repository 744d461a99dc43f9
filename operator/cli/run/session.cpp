#include "operator/cli/run/session.h"

#include <spdlog/spdlog.h>

#include <filesystem>

#include "operator/api/json.h"
#include "operator/api/names.h"
#include "operator/base/files.h"
#include "operator/cli/exit_codes.h"
#include "operator/cli/job_view.h"
#include "operator/cli/run/job_api.h"

namespace trainyard::cli {
namespace {

using cluster::Kind;

// How often the job is looked at. It lies in memory: a look costs microseconds.
constexpr Milliseconds kLook{100};
// One key press may arrive as two signals, from the terminal and from a wrapper such as timeout.
constexpr Milliseconds kSecondThoughts{500};

}  // namespace

Session::Session(const RunSetup& setup, const std::string& state_dir, const Clock& clock)
    : key_{setup.job.meta.ns, setup.job.meta.name},
      plan_only_(setup.job.spec.plan_only),
      state_dir_(state_dir),
      clock_(clock) {}

Result<std::unique_ptr<Session>> Session::Start(const RunSetup& setup, StateDir& state_dir, int port,
                                                const Clock& clock) {
  std::unique_ptr<Session> session(new Session(setup, state_dir.path(), clock));
  auto cluster = local::LocalCluster::Start(setup.cluster);
  if (!cluster) return Fail(cluster.error());
  session->cluster_ = *std::move(cluster);
  session->progress_ = std::make_unique<local::LocalProgressSource>(*session->cluster_);

  auto server =
      http::Server::Start({.port = port, .log = [](const std::string& line) { spdlog::info("api: {}", line); }},
                          MakeJobApi(*session->cluster_));
  if (!server) return Fail(server.error().Wrap("--listen"));
  session->server_ = *std::move(server);

  auto created = session->cluster_->Create(Kind::kTrainingJob, api::JobToJson(setup.job));
  if (!created) return Fail(created.error());

  controller::ControllerOptions options;
  // One job on one machine: a person looks at it, and status costs nothing.
  options.lifecycle.progress_interval = Milliseconds(500);
  options.any_priority_class = true;
  options.lifecycle.backoff = {.base = Milliseconds(500), .max = Milliseconds(10'000)};
  session->controller_ =
      std::make_unique<controller::Controller>(*session->cluster_, *session->progress_, clock, options);
  if (auto started = session->controller_->Start(); !started) return Fail(started.error());
  auto written = state_dir.WriteEndpoint("http://127.0.0.1:" + std::to_string(session->server_->port()));
  if (!written) return Fail(written.error());
  return session;
}

Session::~Session() {
  if (server_) server_->Stop();
  if (controller_) controller_->Stop();
  if (cluster_) cluster_->Shutdown(grace_);
}

Result<api::TrainingJob> Session::Read() {
  auto object = cluster_->Get(Kind::kTrainingJob, key_);
  if (!object) return Fail(object.error());
  return api::JobFromJson(*object);
}

void Session::Stop(const api::TrainingJob& job, Printer& printer) {
  const std::string how =
      job.spec.checkpoint ? "stopping with a checkpoint" : "stopping; there is no spec.checkpoint, so nothing is saved";
  printer.Note(how + "; Ctrl-C again stops at once", clock_.Now());
  auto patched =
      cluster_->Patch(Kind::kTrainingJob, key_, cluster::PatchType::kMerge, {{"spec", {{"suspend", true}}}}, false);
  if (!patched) printer.Problem(patched.error().message);
}

std::optional<int> Session::Ended(const api::TrainingJob& job, bool stopping, Printer& printer) {
  const api::JobStatus& s = job.status;
  if (s.phase == api::Phase::kSucceeded) return kExitOk;
  if (s.phase == api::Phase::kFailed) {
    TellLogs(job, printer);
    return kExitJobFailed;
  }
  if (stopping && s.phase == api::Phase::kSuspended) return kExitInterrupted;
  if (stopping || s.attempt > 0) return std::nullopt;
  // The simulated cluster stays as it is and has no other job: waiting for room would be waiting for ever.
  if (const api::Condition* hindrance = Hindrance(job)) {
    const bool room = hindrance->reason == "NoRoom";
    const bool named = hindrance->message.starts_with(hindrance->reason);
    printer.Problem((named ? "" : hindrance->reason + ": ") + hindrance->message +
                    (room ? "; give more --nodes or --gpus-per-node" : ""));
    return kExitBadInput;
  }
  if (plan_only_ && s.plan && s.plan->generation == job.meta.generation) return kExitOk;
  return std::nullopt;
}

void Session::TellLogs(const api::TrainingJob& job, Printer& printer) {
  if (!job.status.placement) return;
  for (size_t rank = 0; rank < job.status.placement->nodes.size(); ++rank) {
    const std::string pod = api::PodName(job, job.status.attempt, static_cast<int64_t>(rank));
    const std::filesystem::path log = cluster_->PodLog(pod);
    std::error_code error;
    if (std::filesystem::exists(log, error))
      printer.Problem("log of node rank " + std::to_string(rank) + ": " + log.string());
  }
}

Status Session::Keep(const api::TrainingJob& job) {
  const std::string directory = state_dir_ + "/jobs/" + key_.ns;
  if (auto made = MakeDirectories(directory); !made) return made;
  return WriteFileAtomically(directory + "/" + key_.name + ".json", api::JobToJson(job).dump(2) + "\n");
}

int Session::Follow(const Interrupts& interrupts, Printer& printer) {
  std::optional<TimePoint> stopping;
  int seen = 0;
  api::TrainingJob job;
  std::optional<int> code;
  while (!code) {
    auto read = Read();
    if (!read) {
      printer.Problem(read.error().message);
      return kExitJobFailed;
    }
    job = *std::move(read);
    const TimePoint now = clock_.Now();
    for (const StoryEvent& event : narrator_.See(job, now)) printer.Event(event, now);
    code = Ended(job, stopping.has_value(), printer);
    if (code) break;
    printer.Live(LiveLine(job));
    interrupts.Wait(seen, kLook);
    if (interrupts.count() == seen) continue;
    seen = interrupts.count();
    if (stopping && clock_.Now() - *stopping >= kSecondThoughts) {
      printer.Note("stopping at once", clock_.Now());
      grace_ = Milliseconds(0);
      code = kExitInterrupted;
    } else if (!stopping) {
      stopping = clock_.Now();
      Stop(job, printer);
    }
  }
  printer.Live("");
  if (auto kept = Keep(job); !kept) printer.Problem(kept.error().message);
  const bool said_all = job.spec.plan_only || (*code == kExitBadInput);
  if (!said_all) printer.Event(narrator_.Summary(job, clock_.Now()), clock_.Now());
  if (*code == kExitInterrupted && job.spec.checkpoint) {
    printer.Note("run the same command again to go on from the last checkpoint", clock_.Now());
  }
  return *code;
}

}  // namespace trainyard::cli
