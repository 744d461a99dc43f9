#include "operator/sizing/plan.h"

#include <algorithm>
#include <cmath>

#include "operator/base/quantity.h"
#include "operator/sizing/choose.h"
#include "operator/sizing/gpu_catalogue.h"
#include "operator/sizing/links.h"
#include "operator/sizing/scaling.h"

namespace trainyard::sizing {
namespace {

constexpr int64_t kMostGpus = 1'000'000;
constexpr int kDoublingsShown = 2;  // beyond the smallest count that fits

tl::unexpected<Error> Bad(const std::string& what) { return Fail(ErrorCode::kInvalidArgument, what); }

Status Check(const PlanRequest& r) {
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
  for (int64_t n : r.counts) {
    if (n < 1 || n > kMostGpus) return Bad("GPU count " + std::to_string(n) + " is not between 1 and 1M");
    if (n > r.global_batch) {
      return Bad("GPU count " + std::to_string(n) + " is more than the global batch of " +
                 std::to_string(r.global_batch) +
                 " sequences: some GPUs would never have one; use fewer, or a larger " + "global batch");
    }
  }
  for (const std::optional<double>& value : {r.single_gpu_hours, r.tokens}) {
    if (value && !(std::isfinite(*value) && *value > 0)) return Bad("hours and tokens must be positive numbers");
  }
  for (const auto& [product, price] : r.prices) {
    if (!(std::isfinite(price) && price >= 0)) return Bad("a price must be zero or a positive number");
    if (!product.empty()) {
      if (auto known = RequireProduct(product); !known) return Fail(known.error());
    }
  }
  if (!r.prices.empty() && !r.single_gpu_hours && !r.tokens) {
    return Bad("a price gives a cost only together with the hours of one GPU or the tokens to train on");
  }
  return {};
}

StepTraffic TrafficOf(const PlanRequest& request, const Candidate& candidate, const PlanOption& option) {
  const GpuProduct& product = *candidate.product;
  StepTraffic s;
  s.strategy = option.strategy;
  s.parameters = static_cast<double>(request.shape.parameters);
  s.layers = std::max<int64_t>(1, request.shape.layers);
  s.tokens = static_cast<double>(option.micro_batch) * static_cast<double>(request.sequence_length);
  s.accumulation = option.accumulation;
  s.gpus = option.gpus;
  s.gpus_per_domain = option.per_node;
  s.peak_flops = product.bf16_tflops * 1e12;
  s.mfu = product.mfu;
  s.recompute = option.checkpointing == Checkpointing::kFull        ? 1
                : option.checkpointing == Checkpointing::kSelective ? 0.5
                                                                    : 0;
  s.parameter_bytes = RecipeOf(request.precision).compute;
  s.gradient_bytes = 4;
  s.intra_bandwidth = IntraNodeBandwidth(product);
  s.inter_bandwidth = InterNodeBandwidth(product);
  s.intra_latency = IntraNodeLatency(product);
  return s;
}

// Hours of one GPU of this product: from the tokens, or as given for the first product, scaled to others by what they
// reach.
std::optional<double> SingleHours(const PlanRequest& request, const GpuProduct& first, const GpuProduct& product,
                                  double recompute) {
  if (request.single_gpu_hours) {
    const double mine = product.bf16_tflops * product.mfu;
    if (&first == &product || mine <= 0) return request.single_gpu_hours;
    return *request.single_gpu_hours * (first.bf16_tflops * first.mfu) / mine;
  }
  if (!request.tokens || product.bf16_tflops <= 0) return std::nullopt;
  return SingleGpuHours(static_cast<double>(request.shape.parameters), *request.tokens, product.bf16_tflops * 1e12,
                        product.mfu, recompute);
}

void AddTimeAndCost(const PlanRequest& request, const Candidate& candidate, const GpuProduct& first,
                    PlanOption& option) {
  const StepTraffic step = TrafficOf(request, candidate, option);
  option.physical_efficiency = PhysicalEfficiency(step);
  option.efficiency = PlannedEfficiency(step);
  auto single = SingleHours(request, first, *candidate.product, step.recompute);
  if (!single) return;
  double hours = Hours(*single, option.gpus, option.efficiency);
  if (request.round_hours) hours = std::max(1.0, std::round(hours));
  option.hours = hours;
  auto price = request.prices.find(option.product);
  if (price == request.prices.end()) price = request.prices.find("");
  if (price != request.prices.end()) option.cost = Cost(hours, option.gpus, price->second);
}

std::string Difference(const PlanRequest& request, const Candidate& candidate, const ProductMinimum& minimum) {
  if (minimum.state_only == minimum.full) return "";
  const int64_t n = *minimum.state_only;
  if (n > request.global_batch) {
    return "The state alone needs " + std::to_string(n) + " x " + minimum.product + ", more than the global batch of " +
           std::to_string(request.global_batch) + " sequences can use.";
  }
  const PlanOption short_of = Choose(request, candidate, n, std::min(n, candidate.gpus_per_node));
  return "State fits, training does not: " + FormatCount(request.shape.parameters) + " on " + std::to_string(n) +
         " x " + minimum.product + " needs " + NeedOf(short_of) + "; " +
         (minimum.full ? std::to_string(*minimum.full) + (*minimum.full == 1 ? " fits." : " fit.")
                       : "no count up to the global batch of " + std::to_string(request.global_batch) + " fits.");
}

// Where no count is asked for: with one product the counts from the state-only minimum to a few doublings beyond the
// full one; with several the smallest that fits of each.
std::vector<int64_t> CountsToShow(const PlanRequest& request, const Candidate& candidate, const ProductMinimum& minimum,
                                  bool only_product) {
  if (!request.counts.empty()) return request.counts;
  if (!only_product) return minimum.full ? std::vector<int64_t>{*minimum.full} : std::vector<int64_t>{};
  std::vector<int64_t> counts;
  if (*minimum.state_only <= request.global_batch && minimum.state_only != minimum.full) {
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
  if (auto ok = Check(asked); !ok) return Fail(ok.error());
  Plan plan;
  plan.request = asked;
  PlanRequest& request = plan.request;
  if (request.supply.empty()) {
    for (const GpuProduct& p : Catalogue::Default()->products()) {
      if (!p.Simulated()) request.supply.push_back({.product = p.name});
    }
  }
  plan.shape = request.shape;
  plan.state_bytes = ReferenceStateBytes(request.shape.parameters);
  std::vector<Candidate> candidates;
  for (const ProductSupply& supply : request.supply) {
    auto candidate = CandidateOf(supply);
    if (!candidate) return Fail(candidate.error());
    candidates.push_back(*candidate);
  }
  // Prices by short name, whatever name they were given under.
  std::map<std::string, double> prices;
  for (const auto& [name, price] : request.prices) prices[name.empty() ? "" : FindProduct(name)->name] = price;
  request.prices = std::move(prices);
  for (const Candidate& candidate : candidates) {
    ProductMinimum minimum;
    minimum.product = candidate.product->name;
    minimum.state_only = SmallestStateOnly(request.shape.parameters, candidate);
    if (auto full = SmallestFull(request, candidate, 1, request.global_batch)) minimum.full = full->gpus;
    minimum.difference = Difference(request, candidate, minimum);
    plan.minimum_state_only = Least(plan.minimum_state_only, minimum.state_only);
    plan.minimum_full = Least(plan.minimum_full, minimum.full);
    for (int64_t n : CountsToShow(request, candidate, minimum, candidates.size() == 1)) {
      auto per_node = PerNodeFor(n, candidate.gpus_per_node, request.per_node);
      if (!per_node) return Fail(per_node.error().Wrap(minimum.product));
      PlanOption option = Choose(request, candidate, n, *per_node);
      AddTimeAndCost(request, candidate, *candidates.front().product, option);
      plan.options.push_back(std::move(option));
    }
    plan.minimums.push_back(std::move(minimum));
  }
  return plan;
}

}  // namespace trainyard::sizing
