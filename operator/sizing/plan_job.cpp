// PlanJob: the plan of a TrainingJob on what a cluster has.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "operator/api/names.h"
#include "operator/sizing/plan.h"
#include "operator/sizing/words.h"

namespace trainyard::sizing {
namespace {

// Bounds that keep the arithmetic exact; what is sensible within them is the validation's business.
Status CheckTraining(const api::Training& training) {
  constexpr int64_t kMost = 100'000'000;
  const std::tuple<const char*, int64_t, int64_t> fields[] = {{"globalBatchSize", training.global_batch_size, 1},
                                                              {"microBatchSize", training.micro_batch_size, 0},
                                                              {"sequenceLength", training.sequence_length, 1}};
  for (const auto& [name, value, least] : fields) {
    if (value < least || value > kMost) {
      return Fail(ErrorCode::kInvalidArgument, std::string("spec.training.") + name + ": " + std::to_string(value) +
                                                   " is not between " + std::to_string(least) + " and 100M");
    }
  }
  return {};
}

// The products that the job allows and the cluster has.
Result<std::vector<ProductSupply>> Supply(const api::TrainingJob& job, const Catalogue& catalogue,
                                          const std::vector<ProductSupply>& supply) {
  std::vector<const GpuProduct*> allowed;
  for (const std::string& name : job.spec.gpus.products) {
    auto product = catalogue.Require(name);
    if (!product) return Fail(product.error().Wrap("spec.gpus.products"));
    allowed.push_back(*product);
  }
  std::vector<std::pair<const GpuProduct*, ProductSupply>> found;
  std::string present;
  for (const ProductSupply& s : supply) {
    const GpuProduct* product = catalogue.Find(s.product);
    if (product == nullptr) continue;  // a product that no catalogue row describes cannot be planned for
    present += (present.empty() ? "" : ", ") + product->name;
    if (allowed.empty() || std::find(allowed.begin(), allowed.end(), product) != allowed.end()) {
      found.emplace_back(product, s);
    }
  }
  if (found.empty()) {
    return Fail(ErrorCode::kResourceExhausted,
                present.empty() ? "no node of the cluster offers GPUs of a known product; add one, or see its label "
                                  "nvidia.com/gpu.product"
                                : "spec.gpus.products: the cluster has none of them, only " + present);
  }
  // Between equals the job's order decides, and without one the smaller GPU, so that large ones stay free.
  std::stable_sort(found.begin(), found.end(), [&](const auto& a, const auto& b) {
    auto key = [&](const auto& f) {
      const auto place = std::find(allowed.begin(), allowed.end(), f.first) - allowed.begin();
      const int64_t mib = f.second.memory_mib > 0 ? f.second.memory_mib : f.first->memory_mib;
      return std::make_tuple(place, mib, f.first->name);
    };
    return key(a) < key(b);
  });
  std::vector<ProductSupply> usable;
  for (auto& [product, s] : found) usable.push_back(std::move(s));
  return usable;
}

std::string WaysOutText(const Plan& plan) {
  std::string text = plan.ways_out->too_big + "; ways out: ";
  for (const WayOut& way : plan.ways_out->ways) text += way.what + "; ";
  return text + "or spec.gpus.allowOvercommit: true";
}

constexpr size_t kMostAdvice = 8;  // a status is no document

// To five significant digits.
double Rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return 0;
  const double scale = std::pow(10.0, 4 - static_cast<int>(std::floor(std::log10(std::abs(value)))));
  return std::round(value * scale) / scale;
}
std::optional<double> Rounded(std::optional<double> value) {
  return value ? std::optional<double>(Rounded(*value)) : std::nullopt;
}

double Excess(const PlanOption& option) {
  return static_cast<double>(option.bytes.total) / static_cast<double>(option.bytes.capacity);
}

api::PlanStatus StatusOf(const api::TrainingJob& job, const Plan& plan, const PlanOption& option) {
  api::PlanStatus status;
  status.strategy = std::string(api::ToString(StrategyOf(option)));
  status.gpus = option.gpus;
  status.per_node = option.per_node;
  status.product = option.product;
  status.micro_batch_size = option.micro_batch;
  status.accumulation = option.accumulation;
  status.parameters = plan.shape.parameters;
  status.bytes_per_gpu = option.bytes.total;
  status.capacity_bytes = option.bytes.capacity;
  status.checkpoint_bytes = option.checkpoint_bytes;
  status.why = option.why;
  status.generation = job.meta.generation;
  status.activation_checkpointing = std::string(api::ToString(CheckpointingOf(option)));
  status.gradient_reduction = option.reduce_once ? "LastMicroBatch" : "EachMicroBatch";
  status.offload = std::string(api::ToString(OffloadOf(option)));
  status.host_bytes_per_gpu = option.host.offloaded;
  status.disk_bytes_per_gpu = option.host.nvme;
  const PerGpuBytes& b = option.bytes;
  status.bytes = {.weights = b.weights,
                  .gradients = b.gradients,
                  .master = b.master,
                  .optimizer = b.optimizer,
                  .activations = b.activations,
                  .logits = b.logits,
                  .buffers = b.buffers,
                  .overhead = b.overhead};
  status.efficiency = Rounded(option.efficiency);
  status.expected_efficiency = Rounded(option.physical_efficiency);
  status.step_seconds = Rounded(option.step_seconds);
  status.tokens_per_second = Rounded(option.tokens_per_second);
  status.hours = Rounded(option.hours);
  status.cost = Rounded(option.cost);
  if (option.cost) status.currency = plan.request.catalogue->currency();
  for (const RunnerUp& r : plan.runners_up) {
    status.alternatives.push_back({.product = r.option.product,
                                   .gpus = r.option.gpus,
                                   .method = MethodOf(r.option),
                                   .hours = Rounded(r.option.hours),
                                   .cost = Rounded(r.option.cost),
                                   .why = r.why_lost});
  }
  for (const auto* sentences : {&plan.warnings, &plan.advice}) {
    for (const std::string& sentence : *sentences) {
      if (status.advice.size() < kMostAdvice) status.advice.push_back(sentence);
    }
  }
  if (const auto& measured = job.status.measured) {
    status.corrections = *measured;
    status.why += "; corrected by what runs of this job measured: states x" + Grouped(measured->states) +
                  ", activations x" + Grouped(measured->activations) + ", buffers x" + Grouped(measured->buffers) +
                  ", step time x" + Grouped(measured->step_seconds);
  }
  return status;
}

// What to try: the one asked for, or all that whoever runs the job can do.
std::vector<Checkpointing> CheckpointingOf(const api::Spec& spec) {
  switch (spec.training.activation_checkpointing) {
    case api::ActivationCheckpointing::kNone:
      return {Checkpointing::kNone};
    case api::ActivationCheckpointing::kSelective:
      return {Checkpointing::kSelective};
    case api::ActivationCheckpointing::kFull:
      return {Checkpointing::kFull};
    case api::ActivationCheckpointing::kAuto:
      break;
  }
  // What a program of the user's own calls selective is not known.
  if (!spec.UsesBundledTrainer()) return {Checkpointing::kNone, Checkpointing::kFull};
  return {Checkpointing::kNone, Checkpointing::kSelective, Checkpointing::kFull};
}

Offload OffloadOf(api::OffloadTo offload) {
  switch (offload) {
    case api::OffloadTo::kNone:
      return Offload::kNone;
    case api::OffloadTo::kCpu:
      return Offload::kCpu;
    case api::OffloadTo::kNvme:
      return Offload::kNvme;
  }
  return Offload::kNone;
}

Optimizer OptimizerOf(api::OptimizerKind name) {
  switch (name) {
    case api::OptimizerKind::kAdamW:
      return Optimizer::kAdamW;
    case api::OptimizerKind::kAdamW8bit:
      return Optimizer::kAdamW8bit;
    case api::OptimizerKind::kAdafactor:
      return Optimizer::kAdafactor;
    case api::OptimizerKind::kSgd:
      return Optimizer::kSgd;
  }
  return Optimizer::kAdamW;
}

Adapter AdapterOf(const std::optional<api::Adapter>& adapter) {
  if (!adapter) return {};
  const bool nf4 = adapter->quantize_base == api::QuantizeBase::kNf4;
  return {nf4 ? AdapterType::kQLora : AdapterType::kLora, adapter->rank, adapter->targets};
}

}  // namespace

PlanRequest RequestOf(const api::TrainingJob& job, ModelShape shape, std::shared_ptr<const Catalogue> catalogue) {
  const api::Training& training = job.spec.training;
  const api::Gpus& gpus = job.spec.gpus;
  PlanRequest r;
  r.catalogue = std::move(catalogue);
  r.shape = std::move(shape);
  if (gpus.count > 0) {
    r.counts = {gpus.count};
  } else {
    r.least_gpus = std::max<int64_t>(1, gpus.min_count);
    r.most_gpus = gpus.max_count;
  }
  r.per_node = gpus.per_node;
  r.strategy = job.spec.parallelism.strategy;
  r.precision = training.precision;
  r.optimizer = OptimizerOf(training.optimizer.name);
  if (r.optimizer == Optimizer::kSgd) r.momentum = training.optimizer.momentum;
  r.adapter = AdapterOf(job.spec.model.adapter);
  r.sequence_length = training.sequence_length;
  r.micro_batch = training.micro_batch_size;
  // The same bits at every number of GPUs need the same kernels on the same shapes: the first plan's choice stays.
  if (r.micro_batch == 0 && training.determinism == api::Determinism::kWorldSize && job.status.plan) {
    r.micro_batch = job.status.plan->micro_batch_size;
  }
  r.global_batch = training.global_batch_size;
  r.tokens = static_cast<double>(training.steps) * static_cast<double>(training.global_batch_size) *
             static_cast<double>(training.sequence_length);
  r.goal = gpus.goal;
  if (job.spec.budget.max_hours > 0) r.max_hours = job.spec.budget.max_hours;
  if (job.spec.budget.max_cost > 0) r.max_cost = job.spec.budget.max_cost;
  if (const auto& measured = job.status.measured) {
    r.corrections = {.states = measured->states, .activations = measured->activations, .buffers = measured->buffers};
    r.time_correction = measured->step_seconds;
  }
  if (job.spec.checkpoint) r.keep_last = job.spec.checkpoint->keep_last;
  r.bundled_trainer = job.spec.UsesBundledTrainer();
  r.exact_sums = r.bundled_trainer && training.determinism == api::Determinism::kWorldSize;
  r.checkpointing = CheckpointingOf(job.spec);
  r.offloads = {OffloadOf(job.spec.parallelism.offload)};
  return r;
}

Result<api::PlanStatus> PlanJob(const api::TrainingJob& job, const std::vector<ProductSupply>& supply,
                                std::shared_ptr<const Catalogue> catalogue) {
  auto shape = ShapeOf(job);
  if (!shape) return Fail(shape.error());
  if (auto ok = CheckTraining(job.spec.training); !ok) return Fail(ok.error());
  if (catalogue == nullptr) catalogue = Catalogue::Default();
  PlanRequest request = RequestOf(job, *shape, catalogue);
  const api::Gpus& gpus = job.spec.gpus;
  const int64_t least = gpus.count > 0 ? gpus.count : gpus.min_count;
  if (least > request.global_batch) {
    return Fail(ErrorCode::kInvalidArgument, std::string("spec.gpus.") + (gpus.count > 0 ? "count" : "minCount") +
                                                 ": " + std::to_string(least) + " GPUs is more than globalBatchSize " +
                                                 std::to_string(request.global_batch));
  }
  auto usable = Supply(job, *catalogue, supply);
  if (!usable) return Fail(usable.error());
  request.supply = std::move(*usable);

  const auto priced = [&](const ProductSupply& s) { return catalogue->Find(s.product)->price_per_hour.has_value(); };
  if (request.max_cost && std::none_of(request.supply.begin(), request.supply.end(), priced)) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "spec.budget.maxCost: the operator's catalogue has no price of any GPU that the job may use; add prices "
        "to it, or leave the limit out");
  }
  auto plan = MakePlan(request);
  if (!plan) return Fail(plan.error().Wrap("spec.gpus"));
  if (plan->chosen) return StatusOf(job, *plan, plan->options[*plan->chosen]);
  if (!plan->ways_out) {
    const bool limits = request.max_hours || request.max_cost;
    return Fail(ErrorCode::kResourceExhausted, (limits ? "OverBudget: " : "DoesNotFit: ") + plan->not_chosen);
  }
  if (gpus.allow_overcommit && gpus.count > 0 && !plan->options.empty()) {
    PlanOption nearest = *std::min_element(plan->options.begin(), plan->options.end(),
                                           [](const auto& a, const auto& b) { return Excess(a) < Excess(b); });
    nearest.why = "started although it " + nearest.why + " (allowOvercommit)";
    return StatusOf(job, *plan, nearest);
  }
  return Fail(ErrorCode::kResourceExhausted, "DoesNotFit: " + WaysOutText(*plan));
}

}  // namespace trainyard::sizing
