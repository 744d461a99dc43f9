#include "operator/sizing/choose.h"

#include <algorithm>

#include "operator/api/names.h"
#include "operator/base/quantity.h"

namespace trainyard::sizing {
namespace {

// Larger micro batches gain little beyond this many tokens: matrix products are efficient and gathers amortised.
constexpr int64_t kEnoughTokens = 16'384;
// A larger micro batch may make the busiest rank run at most this much more padding than single sequences would.
constexpr double kPadding = 1.10;

std::vector<api::Strategy> Strategies(api::Strategy wanted, int64_t gpus) {
  using api::Strategy;
  if (wanted != Strategy::kAuto) return {wanted};
  if (gpus == 1) return {Strategy::kDdp};
  return {Strategy::kDdp, Strategy::kZero1, Strategy::kZero2, Strategy::kFsdp};
}

const char* CheckpointingWords(Checkpointing checkpointing) {
  switch (checkpointing) {
    case Checkpointing::kNone:
      return "";
    case Checkpointing::kSelective:
      return " with selective activation checkpointing";
    case Checkpointing::kFull:
      return " with full activation checkpointing";
  }
  return "";
}

MemoryInput InputOf(const PlanRequest& request, const Candidate& candidate, int64_t gpus) {
  MemoryInput in;
  in.shape = request.shape;
  in.ranks = gpus;
  in.sequence = request.sequence_length;
  in.micro_batch = std::max<int64_t>(1, request.micro_batch);
  in.recipe = RecipeOf(request.precision);
  const Machine machine = candidate.product->Simulated() ? Machine::kCpu : Machine::kGpu;
  in.engine =
      request.bundled_trainer ? TrainerTraits(request.precision, machine) : EagerTraits(request.precision, machine);
  return in;
}

// The largest power of two that divides the global batch, leaves every rank work, wastes little and fits.
int64_t LargestMicroBatch(const PlanRequest& request, MemoryInput in, int64_t capacity) {
  const int64_t g = request.global_batch;
  const double least = static_cast<double>(Accumulation(g, 1, in.ranks));
  int64_t best = 1;
  for (int64_t b = 2; g % b == 0 && b * in.ranks <= g && b * in.sequence <= kEnoughTokens; b *= 2) {
    in.micro_batch = b;
    if (!Estimate(in, capacity).Fits()) break;
    if (static_cast<double>(b * Accumulation(g, b, in.ranks)) <= kPadding * least) best = b;
  }
  return best;
}

}  // namespace

Result<Candidate> CandidateOf(const ProductSupply& supply) {
  auto product = RequireProduct(supply.product);
  if (!product) return Fail(product.error());
  Candidate c;
  c.product = *product;
  // Labels are text that anybody may have written: a petabyte and a thousand GPUs are enough for one node.
  c.memory_mib = supply.memory_mib > 0 ? std::min(supply.memory_mib, int64_t{1} << 30) : c.product->memory_mib;
  c.gpus_per_node = supply.gpus_per_node > 0 ? std::min<int64_t>(supply.gpus_per_node, 1024) : c.product->gpus_per_node;
  c.nodes = supply.nodes;
  return c;
}

int64_t Accumulation(int64_t global_batch, int64_t micro_batch, int64_t ranks) {
  const int64_t micro_batches = (global_batch + micro_batch - 1) / micro_batch;
  return (micro_batches + ranks - 1) / ranks;
}

PlanOption Choose(const PlanRequest& request, const Candidate& candidate, int64_t gpus, int64_t per_node) {
  PlanOption option;
  option.product = candidate.product->name;
  option.gpus = gpus;
  option.per_node = per_node;
  option.memory_bytes = candidate.memory_mib * 1024 * 1024;
  option.checkpoint_bytes = CheckpointBytes(request.shape.parameters);
  option.state_fits = static_cast<double>(ReferenceStateBytes(request.shape.parameters)) / static_cast<double>(gpus) <=
                      static_cast<double>(option.memory_bytes);
  const int64_t capacity = UsableBytes(candidate.memory_mib);

  MemoryInput in = InputOf(request, candidate, gpus);
  std::string lost;      // simpler strategies that do not fit under the same checkpointing
  std::string lost_all;  // what the thriftiest strategy needs under less checkpointing
  for (Checkpointing checkpointing : request.checkpointing) {
    in.checkpointing = checkpointing;
    lost.clear();
    for (api::Strategy strategy : Strategies(request.strategy, gpus)) {
      in.strategy = strategy;
      option.strategy = strategy;
      option.checkpointing = checkpointing;
      option.bytes = Estimate(in, capacity);
      option.fits = option.bytes.Fits();
      if (option.fits) break;
      lost += (lost.empty() ? "" : ", ") + std::string(api::ToString(strategy)) + " " +
              FormatBinaryBytes(static_cast<double>(option.bytes.total));
    }
    if (option.fits) break;
    lost_all += (lost_all.empty() ? "" : ", ") + std::string(api::ToString(option.strategy)) +
                CheckpointingWords(checkpointing) + " " + FormatBinaryBytes(static_cast<double>(option.bytes.total));
  }
  if (option.fits && request.micro_batch == 0) {
    in.micro_batch = LargestMicroBatch(request, in, capacity);
    option.bytes = Estimate(in, capacity);
  }
  option.micro_batch = in.micro_batch;
  option.accumulation = Accumulation(request.global_batch, in.micro_batch, gpus);

  const std::string shape = std::string(api::ToString(option.strategy)) + CheckpointingWords(option.checkpointing);
  const std::string usable = FormatBinaryBytes(static_cast<double>(capacity)) + " usable";
  if (!option.fits) {
    option.why = "does not fit: " + lost_all + " of " + usable + " per GPU";
    return option;
  }
  option.why = shape + " needs " + FormatBinaryBytes(static_cast<double>(option.bytes.total)) + " of " + usable;
  if (!lost.empty()) option.why += "; too large: " + lost;
  if (!lost_all.empty()) option.why += "; without it: " + lost_all;
  return option;
}

std::string NeedOf(const PlanOption& option) {
  return FormatBinaryBytes(static_cast<double>(option.bytes.total)) + " of " +
         FormatBinaryBytes(static_cast<double>(option.memory_bytes)) + " per GPU";
}

std::optional<PlanOption> SmallestFull(const PlanRequest& request, const Candidate& candidate, int64_t least,
                                       int64_t most) {
  auto option = [&](int64_t n) -> std::optional<PlanOption> {
    auto per_node = PerNodeFor(n, candidate.gpus_per_node, request.per_node);
    if (!per_node) return std::nullopt;
    PlanOption chosen = Choose(request, candidate, n, *per_node);
    return chosen.fits ? std::optional<PlanOption>(std::move(chosen)) : std::nullopt;
  };
  if (least > most) return std::nullopt;
  if (auto found = option(least)) return found;
  std::vector<int64_t> whole_nodes;
  for (int64_t n : ProposedCounts(candidate.gpus_per_node, most)) {
    if (n <= least) continue;
    if (n > candidate.gpus_per_node) {
      if (request.per_node == 0 || n % request.per_node == 0) whole_nodes.push_back(n);
    } else if (auto found = option(n)) {
      return found;
    }
  }
  // Beyond one node every term falls or stays as ranks are added, so the smallest count that fits is found by halving.
  auto first = std::partition_point(whole_nodes.begin(), whole_nodes.end(), [&](int64_t n) { return !option(n); });
  return first == whole_nodes.end() ? std::nullopt : option(*first);
}

int64_t SmallestStateOnly(int64_t parameters, const Candidate& candidate) {
  const int64_t memory = candidate.memory_mib * 1024 * 1024;
  const int64_t needed = std::max<int64_t>(1, (ReferenceStateBytes(parameters) + memory - 1) / memory);
  const int64_t g = candidate.gpus_per_node;
  if (needed > g) return (needed + g - 1) / g * g;
  for (int64_t n = needed; n < g; ++n) {
    if (g % n == 0) return n;
  }
  return g;
}

}  // namespace trainyard::sizing
