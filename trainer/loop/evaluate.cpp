#include "trainer/loop/evaluate.h"

#include <algorithm>
#include <vector>

#include "trainer/loop/exchange.h"

namespace trainyard::loop {

Outcome<double> Evaluate(Session& s) {
  at::NoGradGuard no_grad;
  const int64_t rows = std::min(s.job.training.micro_batch_size, s.validation->samples());
  const int64_t batches = std::min(s.job.training.evaluation_batches, s.validation->samples() / rows);
  std::vector<double> sums(static_cast<size_t>(batches) + 1, 0.0);  // one for each batch, and the targets
  // Every rank runs as many batches as any other, since forward passes may be collective; surplus ones do not count.
  for (int64_t first = 0; first < batches; first += s.env.world) {
    const int64_t mine = first + s.env.rank;
    const bool counts = mine < batches;
    auto batch = s.validation->Load((counts ? mine : 0) * rows, rows);
    if (!batch) return Fails(contract::kExitData, "validation data: " + batch.error().message);
    const at::Tensor weights = batch->weights.defined() ? batch->weights.to(s.device->torch()) : at::Tensor();
    const double sum = s.model->LossSum(batch->tokens.to(s.device->torch()), weights).item<double>();
    if (!counts) continue;
    sums[static_cast<size_t>(mine)] = sum;
    sums.back() += static_cast<double>(batch->targets);
  }
  SumInOrder(*s.world, sums, "evaluation");
  const double targets = sums.back();
  double total = 0;
  for (int64_t i = 0; i < batches; ++i) total += sums[static_cast<size_t>(i)];
  if (targets == 0)
    return Fails(contract::kExitData,
                 "validation data: no target counts: each follows data.documentSeparator, or its file says that it is "
                 "not to be learned");
  return total / targets;
}

}  // namespace trainyard::loop
