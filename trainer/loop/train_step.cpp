#include "trainer/loop/train_step.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "trainer/loop/exchange.h"
#include "trainer/loop/optimizer.h"
#include "trainer/loop/stop_signal.h"
#include "trainer/optim/clip.h"

namespace trainyard::loop {
namespace {

using observe::Activity;

// What the ranks agree on after backward, in one sum: the loss of each micro-batch in a place of its own, so that the
// total is added in the same order at every world size, then tokens and stop bit.
class Agreement {
 public:
  explicit Agreement(int64_t micro_batches) : values_(static_cast<size_t>(micro_batches) + 2, 0.0) {}
  double& loss(int64_t micro_batch) { return values_[static_cast<size_t>(micro_batch)]; }
  double& tokens() { return values_[values_.size() - 2]; }
  double& stop() { return values_.back(); }
  void Reduce(dist::Comm& comm, const std::string& label) { SumInOrder(comm, values_, label); }
  double LossSum() const {
    double sum = 0;
    for (size_t i = 0; i + 2 < values_.size(); ++i) sum += values_[i];
    return sum;
  }

 private:
  std::vector<double> values_;
};

Failure NonFinite(int64_t step, const std::string& what) {
  return {contract::kExitNonFinite, what + " of step " + std::to_string(step) +
                                        " is not finite, so this step is not taken; the last checkpoint stays: lower "
                                        "training.optimizer.learningRate or look at the data"};
}

}  // namespace

Outcome<StepResult> TrainStep(Session& s, int64_t step) {
  const config::Training& training = s.job.training;
  const std::string label = "step " + std::to_string(step);
  const auto plans = data::PlanStep(training.global_batch_size, training.micro_batch_size, s.env.world, s.env.rank);
  const int64_t count = (training.global_batch_size + training.micro_batch_size - 1) / training.micro_batch_size;
  Agreement agreement(count);

  s.engine->BeginStep();
  for (size_t i = 0; i < plans.size(); ++i) {
    const data::MicroBatchPlan& plan = plans[i];
    s.watch->Switch(Activity::kData);
    auto batch = s.feed->Next(s.progress.cursor, i);
    if (!batch) return Fails(contract::kExitData, "training data of " + label + ": " + batch.error().message);
    if (s.sample_log && !plan.padding) s.sample_log->Append(step, s.progress.cursor + plan.first, batch->tokens);
    const at::Tensor tokens = batch->tokens.to(s.device->torch());
    const at::Tensor weights = plan.padding               ? at::zeros({plan.rows}, tokens.options().dtype(at::kFloat))
                               : batch->weights.defined() ? batch->weights.to(tokens.device())
                                                          : at::Tensor();
    s.watch->Switch(Activity::kCompute);
    at::Tensor loss = s.model->LossSum(tokens, weights);
    if (!plan.padding) {
      agreement.loss(plan.first / training.micro_batch_size) = loss.item<double>();
      agreement.tokens() += static_cast<double>(batch->targets);
    }
    s.engine->Backward(std::move(loss), i + 1 == plans.size());
    if (s.traced) s.traced->EndBackward();
  }
  s.engine->FinishBackward();
  agreement.stop() = StopRequested() ? 1 : 0;
  agreement.Reduce(*s.world, label + " loss");

  StepResult result;
  result.tokens = static_cast<int64_t>(agreement.tokens());
  result.stop = agreement.stop() > 0;
  if (result.tokens == 0) {
    return Fails(contract::kExitData, "training data of " + label + ": every target follows data.documentSeparator");
  }
  const double scale = 1.0 / agreement.tokens();
  result.loss = agreement.LossSum() * scale;
  // Both figures are the same on every rank, so all leave together.
  if (!std::isfinite(result.loss)) return Fails(NonFinite(step, "the loss"));
  s.watch->Switch(Activity::kOptimizer);
  result.gradient_norm = s.engine->GradNorm(scale);
  if (!std::isfinite(result.gradient_norm)) return Fails(NonFinite(step, "the gradient norm"));

  result.learning_rate = PlannedRate(training, step);
  s.engine->Step(result.learning_rate, scale * optim::ClipFactor(result.gradient_norm, training.gradient_clip_norm),
                 step);
  s.watch->Switch(Activity::kOther);
  s.progress.step = step;
  s.progress.cursor += training.global_batch_size;
  s.progress.tokens += result.tokens;
  s.progress.loss = result.loss;
  return result;
}

}  // namespace trainyard::loop
