#include "operator/sizing/memory_host.h"

#include <algorithm>
#include <cmath>

#include "operator/sizing/memory_at_rest.h"
#include "operator/sizing/memory_tensors.h"

namespace trainyard::sizing {
namespace {

int64_t Whole(double bytes) { return static_cast<int64_t>(std::ceil(std::min(bytes, 1e18))); }

// fp32 master weights and the optimizer's states of one GPU: what a checkpoint has of it.
double CheckpointShard(const MemoryInput& in) {
  MemoryInput saved = in;
  saved.offload = Offload::kNone;
  const StateBytes state = StateOnGpu(saved);
  return 4 * TrainedElements(in, StageOf(in) >= 1 ? in.ShardRanks() : in.ranks) +
         (StageOf(in) >= 1 ? state.optimizer : state.optimizer / static_cast<double>(in.ranks));
}

}  // namespace

int64_t CheckpointBytes(int64_t parameters) { return 12 * parameters; }

int64_t CheckpointBytes(const MemoryInput& in) {
  MemoryInput one = in;
  one.ranks = 1;
  one.shard_ranks = 0;
  one.tensor_parallel = one.pipeline_parallel = 1;
  one.offload = Offload::kNone;
  return Whole(4 * TrainedElements(one, 1) + StateOnGpu(one).optimizer);
}

HostBytes EstimateHost(const MemoryInput& in, int64_t keep_last) {
  const auto sums = SumsOf(in);
  HostBytes host;
  const StateBytes off = StateOffGpu(in);
  double pinned = CheckpointShard(in);
  const double t = static_cast<double>(std::max<int64_t>(1, in.tensor_parallel));
  if (in.offload != Offload::kNone) {
    // Two blocks on their way in each direction: gradients down, weights up.
    pinned += 2 * (in.recipe.gradients + in.recipe.compute) * sums->trained_block / t;
  }
  if (in.offload == Offload::kNvme && in.engine.streams_weights) {
    // One is updated while the one before is written and the next one is read.
    const double shards = StageOf(in) >= 1 ? static_cast<double>(in.ShardRanks()) : 1;
    const double largest = std::max(sums->trained_block, sums->trained_root);
    const double states = off.optimizer / TrainedElements(in, StageOf(in) >= 1 ? in.ShardRanks() : 1);
    pinned += 3 * ((off.master > 0 ? 4 : 0) + states) * largest / t / shards;
  }
  host.pinned = Whole(pinned);
  if (in.offload == Offload::kCpu) host.offloaded = Whole(off.Total());
  if (in.offload == Offload::kNvme) {
    const double weights = in.engine.streams_weights ? off.weights : 0;
    host.offloaded = Whole(off.gradients + weights);
    host.nvme = Whole(off.weights - weights + off.master + off.optimizer);
  }
  host.checkpoint = CheckpointBytes(in);
  host.disk = Whole(static_cast<double>(host.checkpoint) * static_cast<double>(std::max<int64_t>(0, keep_last) + 1));
  return host;
}

OffloadSeconds OffloadSlowdown(const MemoryInput& in, const OffloadRates& rates, int64_t accumulation) {
  OffloadSeconds seconds;
  if (in.offload == Offload::kNone) return seconds;
  const double trained = TrainedElements(in, StageOf(in) >= 1 ? in.ShardRanks() : 1);
  const double gradients = TrainedElements(in, StageOf(in) >= 2 ? in.ShardRanks() : 1);
  const double micro_batches = static_cast<double>(std::max<int64_t>(1, accumulation));
  const StateBytes off = StateOffGpu(in);
  double moved = in.recipe.compute * (gradients * micro_batches + trained);  // weights come once
  // Weights that live on the host come for the forward and for the backward pass of each micro batch.
  if (in.offload_parameters) moved += 2 * micro_batches * off.weights;
  if (in.engine.streams_weights) {  // gradients go once, summed
    moved = trained * (in.recipe.gradients + in.recipe.compute * (StageOf(in) == 3 ? 2 * micro_batches : 1));
  }
  seconds.transfer = moved / rates.pcie;
  // Gradient, master and states read, master and states written, new weights written.
  const double read = in.engine.streams_weights ? in.recipe.gradients * trained : off.gradients;
  const double masters = std::max(off.master, 4 * trained);  // wherever they are
  const double touched = read + 2 * (masters + off.optimizer) + in.recipe.compute * trained;
  seconds.update = touched / rates.host_memory;
  if (in.offload == Offload::kNvme) {
    const double state = off.master + off.optimizer;
    seconds.disk = state / rates.nvme_read + state / rates.nvme_write;
    if (in.offload_parameters) seconds.disk += 2 * micro_batches * off.weights / rates.nvme_read;
  }
  return seconds;
}

}  // namespace trainyard::sizing
