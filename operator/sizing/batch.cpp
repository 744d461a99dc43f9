#include "operator/sizing/batch.h"

#include <algorithm>

namespace trainyard::sizing {
namespace {

// Matrix products are efficient and gathers amortised with so many tokens in a pass.
constexpr int64_t kEnoughTokens = 16'384;
constexpr double kPadding = 1.10;

}  // namespace

int64_t Accumulation(int64_t global_batch, int64_t micro_batch, int64_t ranks) {
  const int64_t micro_batches = (global_batch + micro_batch - 1) / micro_batch;
  return (micro_batches + ranks - 1) / ranks;
}

std::vector<int64_t> NearestBatches(int64_t global_batch, int64_t micro_batch, int64_t ranks) {
  const int64_t unit = micro_batch * ranks;
  const int64_t below = global_batch / unit * unit;
  if (below == global_batch) return {global_batch};
  if (below == 0) return {unit};
  return {below, below + unit};
}

Batch BatchOf(int64_t global_batch, int64_t micro_batch, int64_t ranks, bool padded) {
  Batch batch{.micro_batch = micro_batch, .ranks = ranks};
  if (padded) {
    batch.accumulation = Accumulation(global_batch, micro_batch, ranks);
    batch.effective = global_batch;
    batch.padding = micro_batch * batch.accumulation * ranks - global_batch;
    return batch;
  }
  const std::vector<int64_t> near = NearestBatches(global_batch, micro_batch, ranks);
  batch.effective = near.size() == 2 && global_batch - near[0] < near[1] - global_batch ? near[0] : near.back();
  batch.accumulation = batch.effective / (micro_batch * ranks);
  return batch;
}

std::vector<int64_t> MicroBatches(int64_t wanted, int64_t global_batch, int64_t sequence, int64_t ranks, bool padded) {
  if (wanted > 0) return {wanted};
  const int64_t least = Accumulation(global_batch, 1, ranks);
  std::vector<int64_t> all = {1};
  std::vector<int64_t> exact;
  if (global_batch % ranks == 0) exact.push_back(1);
  for (int64_t b = 2; global_batch % b == 0 && b * ranks <= global_batch && b * sequence <= kEnoughTokens; b *= 2) {
    const int64_t places = b * Accumulation(global_batch, b, ranks);
    if (static_cast<double>(places) <= kPadding * static_cast<double>(least)) all.push_back(b);
    if (global_batch % (b * ranks) == 0) exact.push_back(b);
  }
  return padded || exact.empty() ? all : exact;
}

}  // namespace trainyard::sizing
