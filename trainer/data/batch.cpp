#include "trainer/data/batch.h"

#include <algorithm>
#include <string>

#include "trainer/data/sampler.h"

namespace trainyard::data {

std::vector<MicroBatchPlan> PlanStep(int64_t global_batch, int64_t micro_batch, int world, int rank) {
  const int64_t total = (global_batch + micro_batch - 1) / micro_batch;
  const int64_t least = total / world;
  const int64_t longer = total % world;  // ranks below this run one more
  const int64_t begin = rank * least + std::min<int64_t>(rank, longer);
  const int64_t end = begin + least + (rank < longer ? 1 : 0);
  std::vector<MicroBatchPlan> plan;
  for (int64_t k = begin; k < end; ++k) {
    const int64_t first = k * micro_batch;
    plan.push_back({first, std::min(micro_batch, global_batch - first), false});
  }
  if (longer != 0 && rank >= longer) {
    plan.push_back({0, 1, true});
  }
  return plan;
}

Result<BatchReader> BatchReader::Make(const TokenSource& source, int64_t sequence_length, Order order, uint64_t seed) {
  const int64_t samples = SampleCount(source.tokens(), sequence_length);
  if (samples < 1) {
    return Fail(ErrorCode::kInvalidArgument, "the data holds " + std::to_string(source.tokens()) +
                                                 " tokens, fewer than one sample of training.sequenceLength " +
                                                 std::to_string(sequence_length) + " and its last target");
  }
  return BatchReader(source, sequence_length, samples, order, seed);
}

Result<at::Tensor> BatchReader::Load(int64_t cursor, int64_t rows) const {
  const int64_t width = sequence_length_ + 1;
  at::Tensor batch = at::empty({rows, width}, at::kLong);
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t at = cursor + i;
    const int64_t sample = order_ == Order::kShuffled ? SampleIndex(seed_, samples_, at) : at % samples_;
    Status copied = source_->Copy(sample * sequence_length_, width, batch.mutable_data_ptr<int64_t>() + i * width);
    if (!copied) {
      return Fail(copied.error());
    }
  }
  return batch;
}

}  // namespace trainyard::data
