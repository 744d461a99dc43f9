#include "trainer/loop/evaluate.h"

#include <algorithm>
#include <vector>

#include "trainer/loop/exchange.h"

namespace trainyard::loop {

Outcome<double> Evaluate(Session& s) {
  at::NoGradGuard no_grad;
  const int64_t rows = std::min(s.job.training.micro_batch_size, s.validation->samples());
  const int64_t batches = std::min(s.job.training.evaluation_batches, s.validation->samples() / rows);
  std::vector<double> sums(static_cast<size_t>(batches), 0.0);
  // Every rank runs as many batches as any other, since forward passes may be collective; surplus ones do not count.
  for (int64_t first = 0; first < batches; first += s.env.world) {
    const int64_t mine = first + s.env.rank;
    const bool counts = mine < batches;
    auto tokens = s.validation->Load((counts ? mine : 0) * rows, rows);
    if (!tokens) return Fails(contract::kExitData, "validation data: " + tokens.error().message);
    const double sum = s.model->LossSum(tokens->to(s.device->torch())).item<double>();
    if (counts) sums[static_cast<size_t>(mine)] = sum;
  }
  SumInOrder(*s.world, sums, "evaluation");
  double total = 0;
  for (const double sum : sums) total += sum;
  return total / static_cast<double>(batches * rows * s.job.training.sequence_length);
}

}  // namespace trainyard::loop
