#include "operator/sizing/choose.h"

#include <algorithm>
#include <cmath>

#include "operator/sizing/links.h"
#include "operator/sizing/memory_tensors.h"

namespace trainyard::sizing {
namespace {

constexpr double kTie = 0.005;  // times and costs this near are equal
constexpr int64_t kMostGpus = 1'000'000;
constexpr double kExactBytes = 8;  // of a gradient as a 64-bit integer, held and on its way
constexpr int64_t kMostTried = 1'024;
constexpr double kCompletePcie = 32e9;  // what OffloadRates::pcie is measured on, on paper

std::vector<api::Strategy> Strategies(const PlanRequest& request, int64_t ranks, Offload offload) {
  using api::Strategy;
  const Strategy wanted = request.strategy;
  if (wanted == Strategy::kHsdp) return {Strategy::kFsdp};  // inside one node the two are one
  if (wanted != Strategy::kAuto) return {wanted};
  // Our trainer can let the weights visit one GPU block by block.
  if (ranks == 1 && offload != Offload::kNone && request.bundled_trainer) return {Strategy::kDdp, Strategy::kFsdp};
  if (ranks == 1) return {Strategy::kDdp};
  return {Strategy::kDdp, Strategy::kZero1, Strategy::kZero2, Strategy::kFsdp};
}

std::vector<Method> MethodsFor(const PlanRequest& request, int64_t gpus, int64_t per_node, int64_t ranks) {
  std::vector<Method> methods;
  // Copies of a sharded state, one per node: FSDP's smaller traffic between nodes.
  const int64_t in_node = per_node / request.tensor_parallel;
  const bool possible =
      gpus > per_node && in_node > 1 && request.pipeline_parallel == 1 && ranks % in_node == 0 && ranks > in_node;
  const bool only = possible && request.strategy == api::Strategy::kHsdp;
  const bool hybrid = only || (possible && request.strategy == api::Strategy::kAuto);
  // With one micro-batch per rank and step there is nothing to choose, and other programs do not tell.
  const bool accumulates = request.bundled_trainer && request.global_batch > ranks;
  const auto add = [&](Method method) {
    methods.push_back(method);
    method.reduce_once = true;
    if (accumulates && method.strategy == api::Strategy::kFsdp && ranks > 1) methods.push_back(method);
  };
  for (Offload offload : request.offloads) {
    for (Checkpointing checkpointing : request.checkpointing) {
      for (api::Strategy strategy : Strategies(request, ranks, offload)) {
        if (only) break;
        add({.offload = offload,
             .checkpointing = checkpointing,
             .strategy = strategy,
             .shard_ranks = strategy == api::Strategy::kDdp ? 1 : ranks});
      }
      if (!hybrid) continue;
      add({.offload = offload,
           .checkpointing = checkpointing,
           .strategy = api::Strategy::kFsdp,
           .shard_ranks = in_node,
           .hybrid = true});
    }
  }
  return methods;
}

// Of a forward pass.
double Recomputed(Checkpointing checkpointing, bool bundled_trainer) {
  switch (checkpointing) {
    case Checkpointing::kNone:
      return 0;
    case Checkpointing::kSelective:
      // Every other matrix product; our trainer none, but norms, rotary positions, activations, and on a GPU attention.
      return bundled_trainer ? 0.1 : 0.5;
    case Checkpointing::kFull:
      return 1;
  }
  return 0;
}

std::optional<double> PriceOf(const PlanRequest& request, const GpuProduct& product) {
  auto price = request.prices.find(product.name);
  if (price == request.prices.end()) price = request.prices.find("");
  if (price != request.prices.end()) return price->second;
  return product.price_per_hour;
}

MemoryInput PreparedInput(const PlanRequest& request, Machine machine) {
  MemoryInput in;
  in.shape = request.shape;
  in.tensor_parallel = request.tensor_parallel;
  in.pipeline_parallel = request.pipeline_parallel;
  in.sequence = request.sequence_length;
  in.flash_attention = request.flash_attention;
  in.recipe = RecipeOf(request.precision);
  in.optimizer = request.optimizer;
  in.momentum = request.momentum > 0;
  in.adapter = request.adapter;
  in.corrections = Bounded(request.corrections);
  in.engine =
      request.bundled_trainer ? TrainerTraits(request.precision, machine) : EagerTraits(request.precision, machine);
  if (request.exact_sums) in.recipe.gradients = in.engine.reduce_bytes = kExactBytes;
  Prepare(in);
  return in;
}

}  // namespace

Result<Candidate> CandidateOf(const PlanRequest& request, const ProductSupply& supply) {
  auto product = request.catalogue->Require(supply.product);
  if (!product) return Fail(product.error());
  Candidate c;
  c.product = *product;
  // Labels are text that anybody may have written: a petabyte and a thousand GPUs are enough for one node.
  c.memory_mib = supply.memory_mib > 0 ? std::min(supply.memory_mib, int64_t{1} << 30) : c.product->memory_mib;
  const double reserve = c.product->driver_reserve;
  c.capacity = reserve == kDefaultDriverReserve
                   ? UsableBytes(c.memory_mib)
                   : static_cast<int64_t>(static_cast<double>(c.memory_mib) * 1024 * 1024 * (1 - reserve));
  c.gpus_per_node = supply.gpus_per_node > 0 ? std::min<int64_t>(supply.gpus_per_node, 1024) : c.product->gpus_per_node;
  c.nodes = supply.nodes;
  c.price = PriceOf(request, *c.product);
  return c;
}

Evaluator::Evaluator(const PlanRequest& request, const std::vector<Candidate>& candidates)
    : request_(request),
      candidates_(candidates),
      gpu_(PreparedInput(request, Machine::kGpu)),
      cpu_(PreparedInput(request, Machine::kCpu)),
      best_(candidates.size()) {
  prices_known_ =
      std::any_of(candidates.begin(), candidates.end(), [](const Candidate& c) { return c.price.has_value(); });
  active_parameters_ = static_cast<double>(ActiveParameters(request.shape));
  attention_flops_ =
      AttentionFlops(static_cast<double>(request.shape.layers), static_cast<double>(request.sequence_length),
                     static_cast<double>(request.shape.AttentionWidth()));
  if (request.adapter.type != AdapterType::kNone) {
    trained_parameters_ =
        gpu_.sums->trained_block * static_cast<double>(request.shape.layers) + gpu_.sums->trained_root;
  }
}

int64_t Evaluator::RanksOf(int64_t gpus) const {
  return gpus / (request_.tensor_parallel * request_.pipeline_parallel);
}

MemoryInput& Evaluator::InputOf(const Candidate& candidate) { return candidate.product->Simulated() ? cpu_ : gpu_; }

void Evaluator::Set(MemoryInput& in, const Method& method, int64_t ranks, int64_t micro_batch) const {
  in.strategy = method.strategy;
  in.checkpointing = method.checkpointing;
  in.offload = method.offload;
  in.reduce_once = method.reduce_once;
  in.ranks = ranks;
  in.shard_ranks = method.hybrid ? method.shard_ranks : 0;
  in.micro_batch = micro_batch;
  in.sequence = request_.sequence_length;
  in.micro_batches = Accumulation(request_.global_batch, micro_batch, ranks);
}

Evaluator::Size& Evaluator::SizeOf(const Candidate& candidate, int64_t gpus, int64_t per_node) {
  const uint64_t cpu = candidate.product->Simulated() ? 1 : 0;
  const uint64_t key = (static_cast<uint64_t>(gpus) << 12 | static_cast<uint64_t>(per_node)) << 1 | cpu;
  auto [found, added] = sizes_.try_emplace(key);
  Size& size = found->second;
  if (!added) return size;
  const int64_t ranks = RanksOf(gpus);
  size.micro_batches = MicroBatches(request_.micro_batch, request_.global_batch, request_.sequence_length, ranks,
                                    request_.bundled_trainer);
  size.methods = MethodsFor(request_, gpus, per_node, ranks);
  size.bytes.assign(size.methods.size() * size.micro_batches.size(), -1);
  return size;
}

int64_t Evaluator::BytesOf(const Candidate& candidate, Size& size, int64_t ranks, size_t method, size_t micro) {
  int64_t& bytes = size.bytes[method * size.micro_batches.size() + micro];
  if (bytes >= 0) return bytes;
  MemoryInput& in = InputOf(candidate);
  Set(in, size.methods[method], ranks, size.micro_batches[micro]);
  bytes = Estimate(in, candidate.capacity).total;
  return bytes;
}

StepTraffic Evaluator::TrafficOf(const Method& method, const Trial& trial) {
  const GpuProduct& product = *trial.candidate->product;
  StepTraffic s;
  s.strategy = method.strategy;
  s.parameters = static_cast<double>(request_.shape.parameters);
  s.active_parameters = active_parameters_;
  s.attention_flops = attention_flops_;
  s.trained_parameters = trained_parameters_;
  s.layers = std::max<int64_t>(1, request_.shape.layers);
  s.hidden = static_cast<double>(request_.shape.hidden);
  s.tokens = static_cast<double>(trial.batch.micro_batch) * static_cast<double>(request_.sequence_length);
  s.accumulation = trial.batch.accumulation;
  s.gpus = trial.gpus;
  s.tensor_parallel = request_.tensor_parallel;
  s.pipeline_parallel = request_.pipeline_parallel;
  s.reduce_once = method.reduce_once;
  s.shard_ranks = method.hybrid ? method.shard_ranks : 0;
  s.gpus_per_domain = trial.per_node;
  const double peak = product.bf16_tflops * 1e12;
  s.peak_flops = peak * PeakShare(request_.precision);
  s.mfu = peak > 0 ? MfuAt(SustainedFlops(product) / peak, s.tokens) : 0;
  s.recompute = Recomputed(method.checkpointing, request_.bundled_trainer);
  s.used = trial.batch.Used();
  s.parameter_bytes = RecipeOf(request_.precision).compute;
  s.gradient_bytes = request_.exact_sums ? kExactBytes : 4;
  s.intra_bandwidth = IntraNodeBandwidth(product);
  s.inter_bandwidth = InterNodeBandwidth(product);
  s.intra_latency = IntraNodeLatency(product);
  if (method.offload != Offload::kNone) {
    MemoryInput& in = InputOf(*trial.candidate);
    Set(in, method, trial.batch.ranks, trial.batch.micro_batch);
    OffloadRates rates;
    rates.pcie *= product.pcie_gbps * 1e9 / kCompletePcie;
    s.offload_seconds = OffloadSlowdown(in, rates, trial.batch.accumulation).Total();
  }
  return s;
}

void Evaluator::AddTime(const Method& method, Trial& trial) {
  const StepTraffic step = TrafficOf(method, trial);
  const double correction = Correction();
  const double gpus = static_cast<double>(trial.gpus);
  trial.mfu = step.mfu;
  trial.physical = PhysicalEfficiency(step);
  trial.planned = std::min(trial.physical, CeilingEfficiency(trial.gpus));
  if (step.peak_flops > 0) trial.step_seconds = correction * step.used * ComputeSeconds(step) / trial.planned;
  const double sequences = static_cast<double>(trial.batch.effective);
  if (request_.single_gpu_hours) {
    const double mine = SustainedFlops(*trial.candidate->product);
    const double first = SustainedFlops(*candidates_.front().product);
    const double slower = mine > 0 && first > 0 ? first / mine : 1;
    trial.hours = correction * Hours(*request_.single_gpu_hours * slower, trial.gpus, trial.planned);
  } else if (request_.tokens && trial.step_seconds > 0) {
    const double steps = *request_.tokens / (sequences * static_cast<double>(request_.sequence_length));
    trial.hours = steps * trial.step_seconds / 3600;
  }
  if (trial.hours && request_.round_hours) trial.hours = std::max(1.0, std::round(*trial.hours));
  trial.pace = trial.step_seconds > 0 ? trial.step_seconds / sequences : 1 / (gpus * trial.planned);
  trial.time = trial.hours.value_or(trial.pace);
  trial.money = trial.time * gpus * trial.candidate->price.value_or(1);
}

double Evaluator::LeastPace(const Candidate& candidate, const Size& size, int64_t gpus, size_t method) const {
  const double peak = candidate.product->bf16_tflops * 1e12;
  if (peak <= 0) return 1 / (static_cast<double>(gpus) * CeilingEfficiency(gpus));
  StepTraffic s;
  s.parameters = static_cast<double>(request_.shape.parameters);
  s.active_parameters = active_parameters_;
  s.attention_flops = attention_flops_;
  s.trained_parameters = trained_parameters_;
  s.tokens = static_cast<double>(request_.sequence_length);
  s.peak_flops = peak * PeakShare(request_.precision);
  s.mfu = MfuAt(SustainedFlops(*candidate.product) / peak, static_cast<double>(size.micro_batches.back()) * s.tokens);
  s.recompute = Recomputed(size.methods[method].checkpointing, request_.bundled_trainer);
  return Correction() * ComputeSeconds(s) / (static_cast<double>(gpus) * CeilingEfficiency(gpus));
}

double Evaluator::Correction() const {
  return std::isfinite(request_.time_correction) ? std::clamp(request_.time_correction, 0.5, 2.0) : 1;
}

Trial Evaluator::TrialOf(const Candidate& candidate, Size& size, int64_t gpus, int64_t per_node, size_t method) {
  const int64_t ranks = RanksOf(gpus);
  Trial best;
  best.candidate = &candidate;
  best.gpus = gpus;
  best.per_node = per_node;
  best.method = method;
  // More tokens in a pass are never slower, but in a pipeline, which wants many passes; larger micro batches need more.
  const bool pipeline = request_.pipeline_parallel > 1;
  bool found = false;
  for (size_t i = size.micro_batches.size(); i-- > 0;) {
    const int64_t bytes = BytesOf(candidate, size, ranks, method, i);
    const bool fits = bytes <= candidate.capacity;
    if (!fits && i > 0) continue;
    Trial trial = best;
    trial.bytes = bytes;
    trial.fits = fits;
    trial.batch = BatchOf(request_.global_batch, size.micro_batches[i], ranks, request_.bundled_trainer);
    if (fits) AddTime(size.methods[method], trial);  // others are timed only if they are shown
    if (!found || (trial.fits && trial.pace < best.pace)) best = trial;
    found = true;
    if (!pipeline) break;
  }
  return best;
}

const Trial* Evaluator::Best(const Candidate& candidate, int64_t gpus) {
  auto [found, added] = best_[candidate.index].try_emplace(gpus);
  std::optional<Trial>& best = found->second;
  if (!added) return best ? &*best : nullptr;
  const int64_t degree = request_.tensor_parallel * request_.pipeline_parallel;
  auto per_node = PerNodeFor(gpus, candidate.gpus_per_node, request_.per_node);
  if (!per_node || gpus % degree != 0) return nullptr;
  Size& size = SizeOf(candidate, gpus, *per_node);
  for (size_t m = 0; m < size.methods.size(); ++m) {
    // Most methods could not win even if all their communication were hidden: they need no closer look.
    if (best && best->fits && LeastPace(candidate, size, gpus, m) >= best->pace * (1 - kTie)) continue;
    // By pace, since recomputation costs time even where the user's own hours of one GPU stand for all of it.
    const Trial trial = TrialOf(candidate, size, gpus, *per_node, m);
    const bool better = !best || (trial.fits != best->fits ? trial.fits
                                  : trial.fits             ? trial.pace < best->pace * (1 - kTie)
                                                           : trial.bytes < best->bytes);
    if (better) best = trial;
  }
  return best ? &*best : nullptr;
}

std::vector<Trial> Evaluator::All(const Candidate& candidate, int64_t gpus) {
  std::vector<Trial> all;
  const Trial* best = Best(candidate, gpus);
  if (best == nullptr) return all;
  Size& size = SizeOf(candidate, gpus, best->per_node);
  for (size_t m = 0; m < size.methods.size(); ++m) all.push_back(TrialOf(candidate, size, gpus, best->per_node, m));
  return all;
}

const Method& Evaluator::MethodOf(const Trial& trial) const {
  const uint64_t cpu = trial.candidate->product->Simulated() ? 1 : 0;
  const uint64_t key = (static_cast<uint64_t>(trial.gpus) << 12 | static_cast<uint64_t>(trial.per_node)) << 1 | cpu;
  return sizes_.at(key).methods[trial.method];
}

std::vector<int64_t> Evaluator::CountsFor(const Candidate& candidate) const {
  const int64_t degree = request_.tensor_parallel * request_.pipeline_parallel;
  std::vector<int64_t> counts = request_.counts;
  if (counts.empty()) {
    const int64_t most = MostGpus(nullptr);
    counts = ProposedCounts(candidate.gpus_per_node, most);
    std::erase_if(counts, [&](int64_t n) { return n < request_.least_gpus; });
    if (request_.least_gpus > 1 && request_.least_gpus <= most) counts.push_back(request_.least_gpus);
    if (request_.most_gpus > 0) counts.push_back(most);
  }
  std::erase_if(counts, [&](int64_t n) {
    const bool shares = request_.per_node == 0 || n % request_.per_node == 0;
    return n % degree != 0 || !shares;
  });
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  return counts;
}

int64_t Evaluator::MostGpus(std::string* why) const {
  int64_t most = request_.most_gpus > 0 ? request_.most_gpus : kMostTried;
  std::string what = "the limit of " + std::to_string(most) + " GPUs";
  const int64_t degree = request_.tensor_parallel * request_.pipeline_parallel;
  if (request_.global_batch < most / degree) {
    most = request_.global_batch * degree;
    what = "the global batch of " + std::to_string(request_.global_batch) + " sequences";
  }
  if (why != nullptr) *why = what;
  return most;
}

std::optional<int64_t> Evaluator::SmallestFull(const Candidate& candidate) {
  const int64_t degree = request_.tensor_parallel * request_.pipeline_parallel;
  const int64_t most = std::min(request_.global_batch, kMostGpus / degree) * degree;
  auto fits = [&](int64_t n) {
    const Trial* best = Best(candidate, n);
    return best != nullptr && best->fits;
  };
  std::vector<int64_t> whole_nodes;
  for (int64_t n : ProposedCounts(candidate.gpus_per_node, most)) {
    if (n % degree != 0 || (request_.per_node > 0 && n % request_.per_node != 0)) continue;
    if (n > candidate.gpus_per_node) {
      whole_nodes.push_back(n);
    } else if (fits(n)) {
      return n;
    }
  }
  // Beyond one node every term falls or stays as ranks are added, so the smallest count that fits is found by halving.
  auto first = std::partition_point(whole_nodes.begin(), whole_nodes.end(), [&](int64_t n) { return !fits(n); });
  return first == whole_nodes.end() ? std::nullopt : std::optional<int64_t>(*first);
}

int64_t SmallestStateOnly(int64_t state_bytes, const Candidate& candidate) {
  const int64_t memory = candidate.memory_mib * 1024 * 1024;
  const int64_t needed = std::max<int64_t>(1, (state_bytes + memory - 1) / memory);
  const int64_t g = candidate.gpus_per_node;
  if (needed > g) return (needed + g - 1) / g * g;
  for (int64_t n = needed; n < g; ++n) {
    if (g % n == 0) return n;
  }
  return g;
}

}  // namespace trainyard::sizing
