#include "trainer/loop/run.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "trainer/loop/evaluate.h"
#include "trainer/loop/restore.h"
#include "trainer/loop/save.h"
#include "trainer/loop/setup.h"
#include "trainer/loop/stop_signal.h"
#include "trainer/loop/train_step.h"
#include "trainer/observe/log.h"
#include "trainer/observe/phase_clock.h"

namespace trainyard::loop {
namespace {

using observe::Activity;

std::chrono::steady_clock::time_point Now() { return std::chrono::steady_clock::now(); }

bool Due(int64_t step, int64_t every) { return every > 0 && step % every == 0; }

Outcome<void> Validate(Session& s) {
  if (!s.validation) return {};
  s.report->Phase(contract::phase::kEvaluating);
  auto loss = Evaluate(s);
  if (!loss) return Fails(loss.error());
  s.progress.validation_loss = *loss;
  if (s.progress.step == 0) s.progress.initial_validation_loss = *loss;
  s.report->status().validation_loss = s.progress.validation_loss;
  s.report->status().initial_validation_loss = s.progress.initial_validation_loss;
  observe::Info(c10::str("held-out loss after step ", s.progress.step, ": ", *loss));
  return {};
}

observe::StepRecord Record(const Session& s, const StepResult& result, observe::PhaseClock& clock, double seconds) {
  observe::StepRecord record;
  record.step = s.progress.step;
  record.loss = result.loss;
  record.learning_rate = result.learning_rate;
  record.gradient_norm = result.gradient_norm;
  record.tokens = result.tokens;
  record.tokens_per_second = static_cast<double>(result.tokens) / seconds;
  record.step_seconds = seconds;
  record.data_seconds = clock.Take(Activity::kData);
  record.compute_seconds = clock.Take(Activity::kCompute);
  record.communication_seconds = clock.Take(Activity::kCommunication);
  record.optimizer_seconds = clock.Take(Activity::kOptimizer);
  record.checkpoint_seconds = clock.Take(Activity::kCheckpoint);
  record.cursor = s.progress.cursor;
  return record;
}

observe::MemoryStatus Memory(const Session& s) {
  const engine::MemoryReport held = s.engine->memory();
  return {.params = held.peak_params,
          .gradients = held.peak_gradients,
          .master = held.master,
          .optimizer = held.optimizer,
          .buffers = held.peak_buffers,
          .activations_peak = s.device->OperationStats().peak_bytes,
          .peak_total = s.device->TotalStats().peak_bytes};
}

// Steps until the last one or an agreed stop. Returns kExitSucceeded or kExitStopped.
Outcome<contract::ExitCode> Train(Session& s) {
  const int64_t steps = s.job.training.steps;
  if (s.progress.step == 0) {
    if (auto validated = Validate(s); !validated) return Fails(validated.error());
  }
  s.report->Phase(contract::phase::kTraining);
  observe::PhaseClock clock(Now());
  bool stop = false;
  while (s.progress.step < steps && !stop) {
    const auto begin = Now();
    auto result = TrainStep(s, s.progress.step + 1, clock);
    if (!result) return Fails(result.error());
    const int64_t step = s.progress.step;
    s.report->status().memory = Memory(s);
    s.report->Step(Record(s, *result, clock, std::chrono::duration<double>(Now() - begin).count()));
    const bool last = step == steps;
    stop = result->stop && !last;  // a stop after the last step has nothing left to stop
    if (stop) s.report->Phase(contract::phase::kStopping);
    clock.Switch(Activity::kEvaluation, Now());
    if (!stop && (last || Due(step, s.job.training.evaluation_every_steps))) {
      if (auto validated = Validate(s); !validated) return Fails(validated.error());
    }
    clock.Switch(Activity::kCheckpoint, Now());
    if (last || stop || (s.job.checkpoint && Due(step, s.job.checkpoint->every_steps))) {
      if (auto saved = Save(s); !saved) return Fails(saved.error());
    }
    clock.Switch(Activity::kOther, Now());
  }
  return stop ? contract::kExitStopped : contract::kExitSucceeded;
}

Outcome<contract::ExitCode> RunSession(Session& s) {
  if (auto connected = Connect(s); !connected) return Fails(connected.error());
  DeferStopSignals();  // peers count on this rank from here on
  BuildModel(s);
  if (auto restored = Restore(s); !restored) return Fails(restored.error());
  auto ended = Train(s);
  if (!ended) return ended;
  s.report->status().parameter_hash = s.engine->ParameterHash();
  const bool stopped = *ended == contract::kExitStopped;
  if (stopped && !s.job.checkpoint)
    observe::Warn(c10::str("stopped at step ", s.progress.step, " without checkpoints: it is lost"));
  observe::Info(c10::str(stopped ? "stopped" : "finished", " at step ", s.progress.step, " of ", s.job.training.steps,
                         ", parameter hash ", s.report->status().parameter_hash));
  s.report->status().step = s.progress.step;
  s.report->Phase(stopped ? contract::phase::kStopped : contract::phase::kSucceeded);
  if (Status closed = s.world->Close(); !closed) observe::Warn(closed.error().message);
  return ended;
}

Outcome<contract::ExitCode> RunGuarded(Session& s) {
  try {
    return RunSession(s);
  } catch (const std::exception& exception) {
    return Fails(FromException(exception));
  }
}

void SayFailure(const std::string& rank, const Failure& failure) {
  std::fprintf(stderr, "trainyard-trainer: rank %s: %s\n", rank.c_str(), failure.message.c_str());
}

}  // namespace

int Run(const config::GetEnv& get) {
  WatchStopSignals();
  auto env = config::ReadEnv(get);
  if (!env) {
    const char* rank = get(contract::kEnvRank);
    SayFailure(rank != nullptr ? rank : "?", {contract::kExitConfiguration, "environment: " + env.error().message});
    return contract::kExitConfiguration;
  }
  observe::OpenLog(env->rank == 0);
  const std::string rank = std::to_string(env->rank);
  auto session = [&]() -> Outcome<std::unique_ptr<Session>> {
    try {
      return Prepare(*env, get);
    } catch (const std::exception& exception) {
      return Fails(FromException(exception));
    }
  }();
  if (!session) {
    SayFailure(rank, session.error());
    return session.error().exit_code;
  }
  Session& s = **session;
  auto ended = RunGuarded(s);
  if (ended) return *ended;
  SayFailure(rank, ended.error());
  s.report->status().message = ended.error().message;
  s.report->Phase(contract::phase::kFailed);
  if (s.world) s.world->Abort();  // peers learn of it now and not at a deadline
  // Work may be under way in other threads: no destructor runs under its feet.
  std::fflush(nullptr);
  std::_Exit(ended.error().exit_code);
}

}  // namespace trainyard::loop
