#include "trainer/loop/report.h"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <numeric>

#include <nlohmann/json.hpp>

#include "operator/base/files.h"
#include "trainer/contract/contract.h"
#include "trainer/observe/log.h"

namespace trainyard::loop {
namespace {

constexpr std::chrono::milliseconds kStatusInterval{200};
constexpr std::chrono::seconds kLineInterval{10};  // a log is read by people: the step log has every step

// Files that training goes on without.
constexpr std::string_view kStatus = "status", kSteps = "steps", kEvents = "events", kTexts = "texts";

// Seconds since the epoch.
double WallTime() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

std::string InRunDir(const config::RankEnv& env, std::string_view file) {
  return env.run_dir + "/" + std::string(file);
}

// As Markdown shows it unchanged: a block of code.
std::string Verbatim(const std::string& text) {
  std::string out = "    ";
  for (const char c : text) {
    out += c;
    if (c == '\n') out += "    ";
  }
  return out;
}

}  // namespace

Report::Report(const config::RankEnv& env, const config::Observe& observe, int64_t steps)
    : active_(env.rank == 0),
      text_file_(InRunDir(env, contract::kTextLogFile)),
      file_(InRunDir(env, contract::kStatusFile), kStatusInterval) {
  status_.job_uid = env.uid;
  status_.attempt = env.attempt;
  status_.round = env.round;
  status_.world_size = env.world;
  status_.steps = steps;
  status_.phase = contract::phase::kStarting;
  if (!active_) return;
  Check("run directory", MakeDirectories(env.run_dir));
  if (auto log = observe::StepLog::Open(InRunDir(env, contract::kStepLogFile)); log) {
    log_ = std::move(*log);
  } else {
    Check(kSteps, Fail(log.error()));
  }
  if (!observe.tensorboard) return;
  const std::string suffix = "trainyard." + std::to_string(env.attempt) + "." + std::to_string(env.round);
  if (auto events = observe::EventFile::Open(observe.tensorboard->Resolve(env.volume_root), WallTime(), suffix);
      events) {
    events_ = std::move(*events);
  } else {
    Check(kEvents, Fail(events.error()));
  }
}

void Report::Phase(std::string_view phase) {
  status_.phase = phase;
  Flush();
}

void Report::Begin(int64_t step) {
  if (events_) Check(kEvents, events_->AppendStart(WallTime(), step + 1));
}

void Report::Evaluated(int64_t step, double loss) {
  if (!active_) return;
  status_.validation_loss = loss;
  if (step == 0) status_.initial_validation_loss = loss;
  if (events_) {
    Check(kEvents,
          events_->Append(WallTime(), step, {{"validation/loss", loss}, {"validation/perplexity", std::exp(loss)}}));
  }
  char line[120];
  std::snprintf(line, sizeof line, "held-out loss after step %" PRId64 ": %.4f, perplexity %.2f", step, loss,
                std::exp(loss));
  observe::Info(line);
}

void Report::Sampled(int64_t step, const std::string& prompt, const std::string& text) {
  if (!active_) return;
  const auto quoted = [](const nlohmann::ordered_json& json) {
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  observe::Info("sample after step " + std::to_string(step) + ": " + quoted(prompt) + " goes on " + quoted(text));
  if (events_) Check(kEvents, events_->AppendText(WallTime(), step, "sample/text_summary", Verbatim(prompt + text)));
  if (!texts_) {
    auto opened = observe::AppendFile::Open(text_file_, "text log");
    if (!opened) return Check(kTexts, Fail(opened.error()));
    texts_ = std::move(*opened);
  }
  Check(kTexts, texts_->Append(quoted({{"step", step}, {"prompt", prompt}, {"text", text}}) + "\n"));
}

void Report::Step(const observe::StepRecord& record) {
  if (!active_) return;
  status_.phase = contract::phase::kTraining;
  status_.step = record.step;
  if (std::isfinite(record.loss)) status_.loss = record.loss;  // else that of the last step that was taken
  status_.skipped_steps = record.skipped_steps;
  status_.tokens_per_second = record.tokens_per_second;
  status_.mfu = record.mfu;
  status_.step_seconds = record.step_seconds;
  status_.data_seconds = record.data_seconds;
  status_.compute_seconds = record.compute_seconds;
  status_.communication_seconds = record.communication_seconds;
  status_.optimizer_seconds = record.optimizer_seconds;
  status_.checkpoint_seconds = record.checkpoint_seconds;
  if (record.ranks) {
    const std::vector<int64_t>& bytes = record.ranks->peak_bytes;
    const auto [least, most] = std::minmax_element(bytes.begin(), bytes.end());
    status_.rank_memory = observe::RankMemoryStatus{*most, static_cast<int>(most - bytes.begin()), *least};
    const std::vector<double>& compute = record.ranks->compute_seconds;
    const auto slowest = std::max_element(compute.begin(), compute.end());
    const double mean = std::accumulate(compute.begin(), compute.end(), 0.0) / static_cast<double>(compute.size());
    if (mean > 0) {
      status_.slowest_rank =
          observe::SlowestRankStatus{static_cast<int>(slowest - compute.begin()), *slowest / mean - 1};
    }
  }
  Alert(record);
  Check(kStatus, file_.Update(status_, std::chrono::steady_clock::now()));
  if (log_) Check(kSteps, log_->Append(record));
  if (events_) {
    Check(kEvents, events_->Append(WallTime(), record.step,
                                   {{"train/loss", record.loss},
                                    {"train/learning_rate", record.learning_rate},
                                    {"train/gradient_norm", record.gradient_norm},
                                    {"train/tokens_per_second", record.tokens_per_second}}));
  }
  Line(record);
}

void Report::Alert(const observe::StepRecord& record) {
  const auto spike = spikes_.See(record.step, record.loss);
  if (!spike) return;
  status_.loss_spike = observe::SpikeStatus{spike->step, spike->loss, spike->median};
  char line[200];
  std::snprintf(line, sizeof line,
                "loss spike at step %" PRId64
                ": %.4f, above %.4f; the median before it was %.4f, the gradient norm is %.3f",
                spike->step, spike->loss, spike->threshold, spike->median, record.gradient_norm);
  observe::Warn(line);
}

void Report::Line(const observe::StepRecord& record) {
  const auto now = std::chrono::steady_clock::now();
  if (now - last_line_ < kLineInterval && record.step != status_.steps) return;
  last_line_ = now;
  const double percent = 100 / record.step_seconds;
  char line[300];
  std::snprintf(line, sizeof line,
                "step %" PRId64 " of %" PRId64
                ": loss %.4f, learning rate %.3g, gradient norm %.3f, %.0f tokens/s; %.0f ms: "
                "data %.0f %%, compute %.0f %%, communication %.0f %%, optimizer %.0f %%",
                record.step, status_.steps, record.loss, record.learning_rate, record.gradient_norm,
                record.tokens_per_second, record.step_seconds * 1e3, record.data_seconds * percent,
                record.compute_seconds * percent, record.communication_seconds * percent,
                record.optimizer_seconds * percent);
  observe::Info(line);
}

void Report::Flush() {
  if (active_) Check(kStatus, file_.Write(status_, std::chrono::steady_clock::now()));
}

void Report::Check(std::string_view file, const Status& written) {
  if (written || !warned_.insert(file).second) return;
  observe::Warn(written.error().message + "; training goes on without it");
}

}  // namespace trainyard::loop
