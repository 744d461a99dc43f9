#include "trainer/loop/run.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "trainer/data/mapped_file.h"
#include "trainer/loop/determinism.h"
#include "trainer/loop/evaluate.h"
#include "trainer/loop/export.h"
#include "trainer/loop/profile.h"
#include "trainer/loop/rank_figures.h"
#include "trainer/loop/restore.h"
#include "trainer/loop/save.h"
#include "trainer/loop/setup.h"
#include "trainer/loop/state_hash.h"
#include "trainer/loop/stop_signal.h"
#include "trainer/loop/train_step.h"
#include "trainer/observe/flops.h"
#include "trainer/observe/log.h"

namespace trainyard::loop {
namespace {

using observe::Activity;

constexpr int64_t kShareEvery = 10;  // steps between two rounds of the ranks' figures

std::chrono::steady_clock::time_point Now() { return std::chrono::steady_clock::now(); }

bool Due(int64_t step, int64_t every) { return every > 0 && step % every == 0; }

Outcome<void> Validate(Session& s) {
  if (!s.validation) return {};
  s.report->Phase(contract::phase::kEvaluating);
  auto loss = Evaluate(s);
  if (!loss) return Fails(loss.error());
  s.progress.validation_loss = *loss;
  if (s.progress.step == 0) s.progress.initial_validation_loss = *loss;
  s.report->Evaluated(s.progress.step, *loss);
  MakeTextSample(s);
  return {};
}

// Parameters that are multiplied with: an embedding table that is not the head too is only looked up.
double TokenFlops(const Session& s) {
  const checkpoint::ModelDescription& m = s.description;
  const int64_t looked_up = m.tied ? 0 : m.vocab * m.hidden;
  return observe::FlopsPerToken(static_cast<double>(s.engine->parameter_count() - looked_up),
                                static_cast<double>(m.layers), static_cast<double>(s.job.training.sequence_length),
                                static_cast<double>(m.heads * m.HeadDim()));
}

observe::StepRecord Record(const Session& s, const StepResult& result, double seconds) {
  observe::PhaseClock& clock = s.watch->clock();
  observe::StepRecord record;
  record.step = s.progress.step;
  record.loss = result.loss;
  record.learning_rate = result.learning_rate;
  record.gradient_norm = result.gradient_norm;
  record.tokens = result.tokens;
  record.tokens_per_second = static_cast<double>(result.tokens) / seconds;
  if (s.job.observe.peak_flops > 0) {
    record.mfu = observe::Mfu(TokenFlops(s), record.tokens_per_second, s.env.world, s.job.observe.peak_flops);
  }
  record.step_seconds = seconds;
  record.data_seconds = clock.Take(Activity::kData);
  record.compute_seconds = clock.Take(Activity::kCompute);
  record.communication_seconds = clock.Take(Activity::kCommunication);
  record.optimizer_seconds = clock.Take(Activity::kOptimizer);
  record.checkpoint_seconds = clock.Take(Activity::kCheckpoint);
  record.cursor = s.progress.cursor;
  record.skipped_steps = s.progress.skipped;
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

// After each step: goes on with the save under way, and begins one that is due. Training waits for the last one only.
Outcome<void> SaveWhenDue(Session& s, const StepResult& result, bool last) {
  if (!s.saver) return {};
  // What stays for its step has to be made, whatever the cadence is.
  const config::Checkpoint& wanted = *s.job.checkpoint;
  const bool due =
      result.save_due || Due(s.progress.step, wanted.every_steps) || Due(s.progress.step, wanted.keep_every_steps);
  if (!last && !due && !s.saver->UnderWay()) return {};
  s.watch->Switch(Activity::kCheckpoint);
  if (last) return Save(s);
  if (auto moved = s.saver->Move(result.saving); !moved) return moved;
  if (due) s.saver->Begin();
  return {};
}

// Steps until the last one or an agreed stop. Returns kExitSucceeded or kExitStopped.
Outcome<contract::ExitCode> Train(Session& s) {
  const int64_t steps = s.job.training.steps;
  if (s.progress.step == 0) {
    if (auto validated = Validate(s); !validated) return Fails(validated.error());
  }
  s.report->Begin(s.progress.step);
  s.report->Phase(contract::phase::kTraining);
  const int64_t begun = s.progress.step;
  RankFigures figures;
  ProfileWindow profile(s);
  bool stop = false;
  while (s.progress.step < steps && !stop) {
    profile.Before(s.progress.step + 1);
    const auto begin = Now();
    auto result = TrainStep(s, s.progress.step + 1);
    if (!result) return Fails(result.error());
    const int64_t step = s.progress.step;
    s.report->status().memory = Memory(s);
    if (auto& restored = s.report->status().restored; restored && !restored->first_step_seconds) {
      restored->first_step_seconds = std::chrono::duration<double>(Now() - s.loaded_at).count();
    }
    observe::StepRecord record = Record(s, *result, std::chrono::duration<double>(Now() - begin).count());
    const bool last = step == steps;
    figures.Add(record);
    if (s.saver) s.saver->Stepped(record.step_seconds);
    if (last || result->stop || (step - begun) % kShareEvery == 0) {
      record.ranks = figures.Share(*s.world, s.device->TotalStats().peak_bytes);
    }
    s.report->Step(record);
    stop = result->stop && !last;  // a stop after the last step has nothing left to stop
    if (stop) s.report->Phase(contract::phase::kStopping);
    if (!stop && (last || Due(step, s.job.training.evaluation_every_steps))) {
      s.watch->Switch(Activity::kEvaluation);
      if (auto validated = Validate(s); !validated) return Fails(validated.error());
    }
    if (auto saved = SaveWhenDue(s, *result, last || stop); !saved) return Fails(saved.error());
    s.watch->Switch(Activity::kOther);
    profile.After(step);
  }
  return stop ? contract::kExitStopped : contract::kExitSucceeded;
}

Outcome<contract::ExitCode> RunSession(Session& s) {
  if (auto connected = Connect(s); !connected) return Fails(connected.error());
  DeferStopSignals();  // peers count on this rank from here on
  BuildModel(s);
  CompareKernels(s);
  if (auto restored = Restore(s); !restored) return Fails(restored.error());
  if (s.report->status().restored) s.report->status().loaded_state_hash = StateHash(s);
  if (s.job.checkpoint) s.saver = std::make_unique<Saver>(s);
  auto ended = Train(s);
  if (!ended) return ended;
  s.report->status().parameter_hash = s.engine->ParameterHash();
  s.report->status().state_hash = StateHash(s);
  const bool stopped = *ended == contract::kExitStopped;
  if (!stopped) {
    if (auto exported = ExportOnSuccess(s); !exported) return Fails(exported.error());
  }
  if (stopped && !s.job.checkpoint)
    observe::Warn(c10::str("stopped at step ", s.progress.step, " without checkpoints: it is lost"));
  observe::Info(c10::str(stopped ? "stopped" : "finished", " at step ", s.progress.step, " of ", s.job.training.steps,
                         ", parameter hash ", s.report->status().parameter_hash));
  s.report->status().step = s.progress.step;
  if (Status closed = s.world->Close(); !closed) observe::Warn(closed.error().message);
  // The other ranks need not wait for it. What a stop saved is read by the next attempt.
  if (!stopped && s.saver) s.saver->AwaitVerified();
  s.report->Phase(stopped ? contract::phase::kStopped : contract::phase::kSucceeded);
  return ended;
}

Outcome<contract::ExitCode> RunGuarded(Session& s, const config::GetEnv& get) {
  try {
    if (auto prepared = Prepare(s, get); !prepared) return Fails(prepared.error());
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
  data::ExplainBusErrors(env->rank, contract::kExitData);
  Session s;
  s.env = *env;
  auto ended = RunGuarded(s, get);
  if (ended) return *ended;
  SayFailure(rank, ended.error());
  if (!s.report) s.report = std::make_unique<Report>(s.env, config::Observe{}, 0);  // it did not come that far
  s.report->status().message = ended.error().message;
  s.report->Phase(contract::phase::kFailed);
  if (s.gpus) s.gpus->Abort(ended.error().message);
  if (s.world) s.world->Abort(ended.error().message);  // peers learn of it now and not at a deadline
  // Work may be under way in other threads: no destructor runs under its feet.
  std::fflush(nullptr);
  std::_Exit(ended.error().exit_code);
}

}  // namespace trainyard::loop
