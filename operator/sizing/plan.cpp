#include "operator/sizing/plan.h"

#include <algorithm>
#include <cmath>

#include "operator/base/quantity.h"
#include "operator/sizing/advice.h"
#include "operator/sizing/words.h"

namespace trainyard::sizing {
namespace {

constexpr int64_t kMostGpus = 1'000'000;
constexpr double kMostHours = 1e12;
constexpr double kMostTokens = 1e30;
constexpr double kMostPrice = 1e9;
constexpr int kDoublingsShown = 2;  // beyond the smallest count that fits

tl::unexpected<Error> Bad(const std::string& what) { return Fail(ErrorCode::kInvalidArgument, what); }

Status CheckRequest(const PlanRequest& r) {
  if (r.sequence_length < 1 || r.sequence_length > 100'000'000) {
    return Bad("sequence length " + std::to_string(r.sequence_length) + " is not between 1 and 100M");
  }
  if (r.global_batch < 1 || r.global_batch > 100'000'000) {
    return Bad("global batch " + std::to_string(r.global_batch) + " is not between 1 and 100M sequences");
  }
  if (r.micro_batch < 0 || r.micro_batch > r.global_batch) {
    return Bad("micro batch " + std::to_string(r.micro_batch) + " is not between 0 and the global batch of " +
               std::to_string(r.global_batch) + " sequences");
  }
  for (int64_t degree : {r.tensor_parallel, r.pipeline_parallel}) {
    if (degree < 1 || degree > 65'536) {
      return Bad("tensor and pipeline parallel degrees must be between 1 and 65,536");
    }
  }
  const int64_t degree = r.tensor_parallel * r.pipeline_parallel;
  for (int64_t n : r.counts) {
    if (n < 1 || n > kMostGpus) return Bad("GPU count " + std::to_string(n) + " is not between 1 and 1M");
    if (n / degree > r.global_batch) {
      return Bad("GPU count " + std::to_string(n) + " is more than the global batch of " +
                 std::to_string(r.global_batch) +
                 " sequences: some GPUs would never have one; use fewer, or a larger global batch");
    }
  }
  for (const std::optional<double>& value : {r.single_gpu_hours, r.tokens, r.max_hours, r.max_cost}) {
    if (value && !(std::isfinite(*value) && *value > 0)) {
      return Bad("hours, tokens and limits must be positive numbers");
    }
  }
  if (r.single_gpu_hours && *r.single_gpu_hours > kMostHours) return Bad("more than 10^12 hours of one GPU");
  if (r.tokens && *r.tokens > kMostTokens) return Bad("more than 10^30 tokens to train on");
  for (const auto& [product, price] : r.prices) {
    if (!(std::isfinite(price) && price >= 0 && price <= kMostPrice)) {
      return Bad("a price must be zero or a positive number up to 10^9");
    }
    if (!product.empty()) {
      if (auto known = r.catalogue->Require(product); !known) return Fail(known.error());
    }
  }
  if (!r.prices.empty() && !r.single_gpu_hours && !r.tokens) {
    return Bad("a price gives a cost only together with the hours of one GPU or the tokens to train on");
  }
  const bool timed = r.single_gpu_hours || r.tokens;
  if (r.max_hours && !timed) {
    return Bad("a limit of hours needs the hours of one GPU, or the tokens to train on");
  }
  if (r.max_cost && !timed) return Bad("a limit of cost needs the hours of one GPU, or the tokens to train on");
  if (r.checkpointing.empty() || r.offloads.empty()) return Bad("a plan needs a recomputation and an offload to try");
  if (r.least_gpus < 1 || r.most_gpus < 0 || (r.most_gpus > 0 && r.most_gpus < r.least_gpus)) {
    return Bad("the search from " + std::to_string(r.least_gpus) + " to " + std::to_string(r.most_gpus) +
               " GPUs is empty");
  }
  if (r.keep_last < 0 || r.keep_last > 1'000'000) return Bad("checkpoints to keep must be between 0 and 1M");
  MemoryInput in;
  in.shape = r.shape;
  in.tensor_parallel = r.tensor_parallel;
  in.pipeline_parallel = r.pipeline_parallel;
  in.sequence = r.sequence_length;
  in.optimizer = r.optimizer;
  in.adapter = r.adapter;
  return Check(in);
}

std::string Difference(Evaluator& evaluator, const Candidate& candidate, const ProductMinimum& minimum) {
  if (minimum.full && *minimum.state_only >= *minimum.full) return "";
  const PlanRequest& request = evaluator.request();
  const int64_t n = *minimum.state_only;
  if (n > request.global_batch) {
    return "The state alone needs " + Sized(n, minimum.product) + ", more than the global batch of " +
           std::to_string(request.global_batch) + " sequences can use.";
  }
  const Trial* short_of = evaluator.Best(candidate, n);
  if (short_of == nullptr || short_of->fits) return "";
  return "State fits, training does not: " + FormatCount(request.shape.parameters) + " on " +
         Sized(n, minimum.product) + " needs " + NeedOf(evaluator.OptionOf(*short_of)) + "; " +
         (minimum.full ? Fits(*minimum.full) + "."
                       : "no count up to the global batch of " + std::to_string(request.global_batch) + " fits.");
}

// Where no count is asked for: with one product the counts from the state-only minimum to a few doublings beyond the
// full one; with several the smallest that fits of each.
std::vector<int64_t> CountsToShow(Evaluator& evaluator, const Candidate& candidate, const ProductMinimum& minimum) {
  const PlanRequest& request = evaluator.request();
  if (!request.counts.empty()) return request.counts;
  if (evaluator.candidates().size() > 1) {
    return minimum.full ? std::vector<int64_t>{*minimum.full} : std::vector<int64_t>{};
  }
  std::vector<int64_t> counts;
  if (*minimum.state_only <= request.global_batch && (!minimum.full || *minimum.state_only < *minimum.full)) {
    counts.push_back(*minimum.state_only);
  }
  if (!minimum.full) return counts;
  const auto proposed = ProposedCounts(candidate.gpus_per_node, request.global_batch);
  int64_t n = *minimum.full;
  for (int i = 0; i <= kDoublingsShown; ++i, n *= 2) {
    if (std::find(proposed.begin(), proposed.end(), n) != proposed.end()) counts.push_back(n);
  }
  return counts;
}

// Where in `options` it is; it is added, after those of its product, where it is not.
size_t IndexOf(const PlanOption& option, std::vector<PlanOption>& options) {
  size_t after = options.size();
  for (size_t i = 0; i < options.size(); ++i) {
    if (options[i].product != option.product) continue;
    if (options[i].gpus == option.gpus && options[i].per_node == option.per_node) return i;
    if (options[i].gpus < option.gpus || after == options.size()) after = i + (options[i].gpus < option.gpus ? 1 : 0);
  }
  options.insert(options.begin() + static_cast<std::ptrdiff_t>(after), option);
  return after;
}

Error CannotShare(const PlanRequest& request, const Candidate& candidate, int64_t gpus) {
  auto per_node = PerNodeFor(gpus, candidate.gpus_per_node, request.per_node);
  if (!per_node) return per_node.error();
  return {ErrorCode::kInvalidArgument, "GPU count " + std::to_string(gpus) + " is not a multiple of tensor parallel " +
                                           std::to_string(request.tensor_parallel) + " x pipeline parallel " +
                                           std::to_string(request.pipeline_parallel)};
}

std::optional<int64_t> Least(std::optional<int64_t> a, std::optional<int64_t> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

}  // namespace

std::vector<int64_t> ProposedCounts(int64_t gpus_per_node, int64_t limit) {
  std::vector<int64_t> counts;
  for (int64_t n = 1; n < gpus_per_node && n <= limit; ++n) {
    if (gpus_per_node % n == 0) counts.push_back(n);
  }
  for (int64_t n = gpus_per_node; n <= std::min(limit, kMostGpus); n += gpus_per_node) counts.push_back(n);
  return counts;
}

Result<int64_t> PerNodeFor(int64_t gpus, int64_t gpus_per_node, int64_t wanted) {
  if (wanted > gpus_per_node) {
    return Bad("GPUs per node " + std::to_string(wanted) + " is more than the " + std::to_string(gpus_per_node) +
               " that a node has");
  }
  if (wanted > 0) {
    if (gpus % wanted == 0) return wanted;
    return Bad("GPU count " + std::to_string(gpus) + " is not a multiple of " + std::to_string(wanted) + " per node");
  }
  for (int64_t share = std::min(gpus, gpus_per_node); share > 1; --share) {
    if (gpus % share == 0) return share;
  }
  return 1;
}

Result<Plan> MakePlan(const PlanRequest& asked) {
  Plan plan;
  plan.request = asked;
  PlanRequest& request = plan.request;
  if (request.catalogue == nullptr) request.catalogue = Catalogue::Default();
  if (auto ok = CheckRequest(request); !ok) return Fail(ok.error());
  if (request.supply.empty()) {
    for (const GpuProduct& p : request.catalogue->products()) {
      if (!p.Simulated()) request.supply.push_back({.product = p.name});
    }
  }
  plan.shape = request.shape;
  // Prices by short name, whatever name they were given under.
  std::map<std::string, double> prices;
  for (const auto& [name, price] : request.prices) {
    prices[name.empty() ? "" : request.catalogue->Find(name)->name] = price;
  }
  request.prices = std::move(prices);
  std::vector<Candidate> candidates;
  for (const ProductSupply& supply : request.supply) {
    auto candidate = CandidateOf(request, supply);
    if (!candidate) return Fail(candidate.error());
    candidate->index = candidates.size();
    candidates.push_back(*candidate);
  }
  if (request.max_cost &&
      std::none_of(candidates.begin(), candidates.end(), [](const auto& c) { return c.price.has_value(); })) {
    return Bad("a limit of cost needs prices: give them, or a catalogue that has them");
  }

  Evaluator evaluator(request, candidates);
  plan.state_bytes = evaluator.StateBytes();
  std::optional<Error> cannot_share;  // the sizes asked for, on some product
  for (const Candidate& candidate : candidates) {
    ProductMinimum minimum;
    minimum.product = candidate.product->name;
    minimum.state_only = SmallestStateOnly(plan.state_bytes, candidate);
    minimum.full = evaluator.SmallestFull(candidate);
    minimum.difference = Difference(evaluator, candidate, minimum);
    plan.minimum_state_only = Least(plan.minimum_state_only, minimum.state_only);
    plan.minimum_full = Least(plan.minimum_full, minimum.full);
    for (int64_t n : CountsToShow(evaluator, candidate, minimum)) {
      const Trial* trial = evaluator.Best(candidate, n);
      if (trial == nullptr) {
        cannot_share = CannotShare(request, candidate, n).Wrap("on " + minimum.product);
      } else {
        plan.options.push_back(evaluator.OptionOf(*trial));
      }
    }
    plan.minimums.push_back(std::move(minimum));
  }
  if (plan.options.empty() && cannot_share) return Fail(*cannot_share);
  const std::optional<Trial> chosen = Search(evaluator, &plan.not_chosen);
  if (chosen) {
    plan.chosen = IndexOf(evaluator.OptionOf(*chosen), plan.options);
    plan.range = RangeOf(evaluator, *chosen);
    plan.runners_up = RunnersUp(evaluator, *chosen);
    plan.advice = AdviceFor(evaluator, *chosen);
  } else if (const std::optional<Trial> nearest = Nearest(evaluator); nearest && !nearest->fits) {
    plan.ways_out = WaysOutOf(evaluator, *nearest);
  }
  plan.warnings = WarningsFor(request, plan.options, plan.chosen ? &plan.options[*plan.chosen] : nullptr);
  return plan;
}

}  // namespace trainyard::sizing
