#include "trainer/loop/train_step.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "trainer/loop/exchange.h"
#include "trainer/loop/optimizer.h"
#include "trainer/loop/stop_signal.h"
#include "trainer/observe/log.h"
#include "trainer/optim/clip.h"

namespace trainyard::loop {
namespace {

using observe::Activity;

// What the ranks agree on after backward, in one sum: the loss of each micro-batch in a place of its own, so that the
// total is added in the same order at every world size, then for each rank whether its own loss is no number, then
// tokens, and how many ranks were asked to stop, are at work for a save, and see that one is due.
class Agreement {
 public:
  Agreement(int64_t micro_batches, int world)
      : losses_(static_cast<size_t>(micro_batches)), values_(losses_ + static_cast<size_t>(world) + kLast, 0.0) {}
  void Clear() { std::fill(values_.begin(), values_.end(), 0.0); }
  // Books the sum over a micro-batch that `rank` computed. One that is no number is left out: it would hide who made
  // it.
  void AddLoss(int64_t micro_batch, int rank, double sum) {
    if (std::isfinite(sum)) {
      values_[static_cast<size_t>(micro_batch)] = sum;
    } else {
      values_[losses_ + static_cast<size_t>(rank)] = 1;
    }
  }
  double& tokens() { return values_[values_.size() - 4]; }
  double& stop() { return values_[values_.size() - 3]; }
  double& saving() { return values_[values_.size() - 2]; }
  double& save_due() { return values_.back(); }
  void Reduce(dist::Comm& comm, const std::string& label) { SumInOrder(comm, values_, label); }
  // Over all micro-batches; may overflow.
  double LossSum() const { return std::accumulate(values_.begin(), values_.begin() + losses_, 0.0); }
  // "rank 1, 3", or "" when all losses are numbers.
  std::string NonFiniteRanks() const {
    std::string ranks;
    for (size_t i = losses_; i + kLast < values_.size(); ++i) {
      if (values_[i] > 0) ranks += (ranks.empty() ? "rank " : ", ") + std::to_string(i - losses_);
    }
    return ranks;
  }

 private:
  static constexpr size_t kLast = 4;  // tokens and what follows them
  const size_t losses_;
  std::vector<double> values_;
};

// Steps in a row that SkipStep passes over: what makes more of them is no accident.
constexpr int64_t kMostSkipsInARow = 20;

// What is not finite in this step, in words that are the same on every rank; "" when all is.
std::string NonFinite(Session& s, const Agreement& agreement, double scale, StepResult& result) {
  result.loss = std::numeric_limits<double>::quiet_NaN();
  if (const std::string ranks = agreement.NonFiniteRanks(); !ranks.empty()) return "the loss on " + ranks;
  result.loss = agreement.LossSum() * scale;
  if (!std::isfinite(result.loss)) return "the sum of the losses of all ranks";
  result.gradient_norm = s.engine->GradNorm(scale);
  if (std::isfinite(result.gradient_norm)) return "";
  const std::string& reason = s.engine->ExactReason();
  return "the gradient norm (" + (reason.empty() ? "each loss was finite" : reason) + ")";
}

// Passes over the step where the job says so, else fails.
Outcome<void> Skip(Session& s, int64_t step, const std::string& what) {
  const std::string text = what + " of step " + std::to_string(step) + " is not finite";
  if (s.job.training.on_non_finite_loss == config::NonFinite::kStop) {
    return Fails(contract::kExitNonFinite, text +
                                               ", so this step is not taken; the last checkpoint stays: lower "
                                               "training.optimizer.learningRate or look at the data");
  }
  if (++s.progress.skipped_in_a_row > kMostSkipsInARow) {
    return Fails(contract::kExitNonFinite, text + ", and so were those of the " + std::to_string(kMostSkipsInARow) +
                                               " steps before it: training.onNonFiniteLoss SkipStep does not help "
                                               "here; lower training.optimizer.learningRate or look at the data");
  }
  ++s.progress.skipped;
  if (s.env.rank == 0) observe::Warn(text + ": skipped, with weights and optimizer as they were");
  return {};
}

// One step of this rank until the ranks meet: its micro-batches, forward and backward.
class MicroBatches {
 public:
  MicroBatches(Session& session, int64_t step)
      : s_(session),
        step_(step),
        plans_(data::PlanStep(session.job.training.global_batch_size, session.job.training.micro_batch_size,
                              session.env.world, session.env.rank)),
        keeps_(session.job.training.determinism == config::Determinism::kWorldSize) {}

  // Again with the same data when it is called again, which it may be with determinism WorldSize.
  Outcome<void> Run(Agreement& agreement) {
    agreement.Clear();
    s_.engine->BeginStep();
    for (size_t i = 0; i < plans_.size(); ++i) {
      const data::MicroBatchPlan& plan = plans_[i];
      s_.watch->Switch(Activity::kData);
      auto batch = Load(i);
      if (!batch) return Fails(batch.error());
      const at::Tensor tokens = batch->tokens.to(s_.device->torch());
      const at::Tensor weights = plan.padding               ? at::zeros({plan.rows}, tokens.options().dtype(at::kFloat))
                                 : batch->weights.defined() ? batch->weights.to(tokens.device())
                                                            : at::Tensor();
      s_.watch->Switch(Activity::kCompute);
      at::Tensor loss = s_.model->LossSum(tokens, weights, model::BatchPlace{step_, plan.first});
      if (!plan.padding) {
        agreement.AddLoss(plan.first / s_.job.training.micro_batch_size, s_.env.rank, loss.item<double>());
        agreement.tokens() += static_cast<double>(batch->targets);
      }
      s_.engine->Backward(std::move(loss), i + 1 == plans_.size(), plan.padding);
      if (s_.traced) s_.traced->EndBackward();
    }
    return {};
  }

 private:
  Outcome<data::Batch> Load(size_t i) {
    if (i < kept_.size()) return kept_[i];
    const data::MicroBatchPlan& plan = plans_[i];
    auto batch = s_.feed->Next(s_.progress.cursor, i);
    if (!batch) {
      return Fails(contract::kExitData,
                   "training data of step " + std::to_string(step_) + ": " + batch.error().message);
    }
    if (s_.sample_log && !plan.padding) s_.sample_log->Append(step_, s_.progress.cursor + plan.first, batch->tokens);
    if (keeps_) kept_.push_back(*batch);
    return std::move(*batch);
  }

  Session& s_;
  const int64_t step_;
  const std::vector<data::MicroBatchPlan> plans_;
  const bool keeps_;
  std::vector<data::Batch> kept_;
};

}  // namespace

Outcome<StepResult> TrainStep(Session& s, int64_t step) {
  const config::Training& training = s.job.training;
  const std::string label = "step " + std::to_string(step);
  Agreement agreement(data::MicroBatchCount(training.global_batch_size, training.micro_batch_size), s.env.world);
  MicroBatches micro_batches(s, step);
  if (auto ran = micro_batches.Run(agreement); !ran) return Fails(ran.error());
  if (!s.engine->FinishBackward()) {
    if (s.env.rank == 0) observe::Info(label + " is run again, more exactly: " + s.engine->ExactReason());
    if (auto ran = micro_batches.Run(agreement); !ran) return Fails(ran.error());
    TORCH_CHECK(s.engine->FinishBackward(), "a step that is run again must fit");
  }
  agreement.stop() = StopRequested() ? 1 : 0;
  agreement.saving() = s.saver && s.saver->Working() ? 1 : 0;
  agreement.save_due() = s.saver && s.saver->Due() ? 1 : 0;
  agreement.Reduce(*s.world, label + " loss");

  StepResult result;
  result.tokens = static_cast<int64_t>(agreement.tokens());
  result.stop = agreement.stop() > 0;
  result.saving = agreement.saving() > 0;
  result.save_due = agreement.save_due() > 0;
  if (result.tokens == 0) {
    return Fails(
        contract::kExitData,
        "training data of " + label +
            ": no target counts: each follows data.documentSeparator, or its file says that it is not to be learned");
  }
  const double scale = 1.0 / agreement.tokens();
  // The same on every rank, so all skip the step, leave or go on together.
  s.watch->Switch(Activity::kOptimizer);
  const std::string what = NonFinite(s, agreement, scale, result);
  result.learning_rate = PlannedRate(training, step);
  if (what.empty()) {
    // A skipped step is none for the optimizer: its bias correction counts updates.
    s.engine->Step(result.learning_rate, scale * optim::ClipFactor(result.gradient_norm, training.gradient_clip_norm),
                   step - s.progress.skipped);
    s.progress.skipped_in_a_row = 0;
    s.progress.loss = result.loss;
  } else if (auto skipped = Skip(s, step, what); !skipped) {
    return Fails(skipped.error());
  }
  s.watch->Switch(Activity::kOther);
  s.progress.step = step;
  s.progress.cursor += training.global_batch_size;
  s.progress.tokens += result.tokens;
  return result;
}

}  // namespace trainyard::loop
