// PlanJob: the plan of a TrainingJob on what a cluster has.
#include <algorithm>
#include <tuple>

#include "operator/api/names.h"
#include "operator/base/quantity.h"
#include "operator/sizing/choose.h"
#include "operator/sizing/gpu_catalogue.h"
#include "operator/sizing/plan.h"

namespace trainyard::sizing {
namespace {

PlanRequest RequestOf(const api::TrainingJob& job, ModelShape shape) {
  const api::Training& training = job.spec.training;
  PlanRequest r;
  r.shape = std::move(shape);
  r.per_node = job.spec.gpus.per_node;
  r.strategy = job.spec.parallelism.strategy;
  r.precision = training.precision;
  r.sequence_length = training.sequence_length;
  r.micro_batch = training.micro_batch_size;
  r.global_batch = training.global_batch_size;
  // Our trainer keeps every activation; a user's own program may recompute them.
  r.bundled_trainer = job.spec.UsesBundledTrainer();
  if (r.bundled_trainer) r.checkpointing = {Checkpointing::kNone};
  return r;
}

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

// The products that the job allows and the cluster has, in the job's order of preference.
Result<std::vector<Candidate>> Candidates(const api::TrainingJob& job, const std::vector<ProductSupply>& supply) {
  std::vector<const GpuProduct*> allowed;
  for (const std::string& name : job.spec.gpus.products) {
    auto product = RequireProduct(name);
    if (!product) return Fail(product.error().Wrap("spec.gpus.products"));
    allowed.push_back(*product);
  }
  std::vector<Candidate> found;
  std::string present;
  for (const ProductSupply& s : supply) {
    auto candidate = CandidateOf(s);
    if (!candidate) continue;  // a product that no catalogue row describes cannot be planned for
    present += (present.empty() ? "" : ", ") + candidate->product->name;
    const bool wanted =
        allowed.empty() || std::find(allowed.begin(), allowed.end(), candidate->product) != allowed.end();
    if (wanted) found.push_back(*candidate);
  }
  if (found.empty()) {
    return Fail(ErrorCode::kResourceExhausted,
                present.empty() ? "no node of the cluster offers GPUs of a known product; add one, or see its label "
                                  "nvidia.com/gpu.product"
                                : "spec.gpus.products: the cluster has none of them, only " + present);
  }
  if (!allowed.empty()) {
    std::stable_sort(found.begin(), found.end(), [&](const Candidate& a, const Candidate& b) {
      return std::find(allowed.begin(), allowed.end(), a.product) <
             std::find(allowed.begin(), allowed.end(), b.product);
    });
  } else {
    // No preference stated: the smaller GPU first, so that large ones stay free for those who need them.
    std::stable_sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) {
      return std::tie(a.memory_mib, a.product->name) < std::tie(b.memory_mib, b.product->name);
    });
  }
  return found;
}

bool ClusterHolds(const Candidate& candidate, const PlanOption& option) {
  return candidate.nodes == 0 || option.gpus / option.per_node <= candidate.nodes;
}

double Excess(const PlanOption& option) {
  return static_cast<double>(option.bytes.total) / static_cast<double>(option.bytes.capacity);
}

std::string WaysOut(const PlanRequest& request, const std::vector<Candidate>& candidates, bool bundled) {
  std::string ways;
  auto add = [&](const std::string& way) { ways += (ways.empty() ? "" : ", ") + way; };
  for (const Candidate& candidate : candidates) {
    if (auto option = SmallestFull(request, candidate, 1, request.global_batch)) {
      add(std::to_string(option->gpus) + " x " + candidate.product->name + (option->gpus == 1 ? " fits" : " fit"));
    }
  }
  if (request.strategy != api::Strategy::kAuto && request.strategy != api::Strategy::kFsdp) {
    add(bundled ? "spec.parallelism.strategy Auto" : "spec.parallelism.strategy FSDP");
  }
  if (request.micro_batch > 1) add("a smaller spec.training.microBatchSize");
  if (request.sequence_length > 512) add("a shorter spec.training.sequenceLength");
  add("spec.gpus.allowOvercommit: true");
  return ways;
}

api::PlanStatus StatusOf(const api::TrainingJob& job, const PlanOption& option) {
  api::PlanStatus status;
  status.strategy = std::string(api::ToString(option.strategy));
  status.gpus = option.gpus;
  status.per_node = option.per_node;
  status.product = option.product;
  status.micro_batch_size = option.micro_batch;
  status.accumulation = option.accumulation;
  status.parameters = option.checkpoint_bytes / 12;
  status.bytes_per_gpu = option.bytes.total;
  status.capacity_bytes = option.bytes.capacity;
  status.checkpoint_bytes = option.checkpoint_bytes;
  status.why = option.why;
  status.generation = job.meta.generation;
  return status;
}

}  // namespace

Result<api::PlanStatus> PlanJob(const api::TrainingJob& job, const std::vector<ProductSupply>& supply) {
  auto shape = ShapeOf(job);
  if (!shape) return Fail(shape.error());
  const PlanRequest request = RequestOf(job, *shape);
  const api::Gpus& gpus = job.spec.gpus;
  if (auto ok = CheckTraining(job.spec.training); !ok) return Fail(ok.error());
  const int64_t least = gpus.count > 0 ? gpus.count : gpus.min_count;
  if (least > request.global_batch) {
    return Fail(ErrorCode::kInvalidArgument, std::string("spec.gpus.") + (gpus.count > 0 ? "count" : "minCount") +
                                                 ": " + std::to_string(least) + " GPUs is more than globalBatchSize " +
                                                 std::to_string(request.global_batch));
  }
  auto candidates = Candidates(job, supply);
  if (!candidates) return Fail(candidates.error());

  // The best fitting option: one that the cluster can hold, then the fewest GPUs, then the job's order of products.
  std::optional<PlanOption> best;
  bool best_held = false;
  std::optional<PlanOption> nearest;  // of those that do not fit
  std::optional<Error> shares;
  for (const Candidate& candidate : *candidates) {
    // An explicit count stands alone; else the smallest of the elastic range, or of all.
    const int64_t from = std::max<int64_t>(1, least);
    const int64_t to = gpus.count > 0       ? gpus.count
                       : gpus.max_count > 0 ? std::min(gpus.max_count, request.global_batch)
                                            : request.global_batch;
    if (auto option = SmallestFull(request, candidate, from, to)) {
      const bool held = ClusterHolds(candidate, *option);
      if (!best || std::make_tuple(!held, option->gpus) < std::make_tuple(!best_held, best->gpus)) {
        best = std::move(option);
        best_held = held;
      }
      continue;
    }
    // Nothing fits: what comes nearest is the largest count allowed.
    const int64_t n = to;
    auto per_node = PerNodeFor(n, candidate.gpus_per_node, request.per_node);
    if (!per_node) {
      shares = per_node.error().Wrap("spec.gpus on " + candidate.product->name);
      continue;
    }
    PlanOption option = Choose(request, candidate, n, *per_node);
    if (!nearest || Excess(option) < Excess(*nearest)) nearest = std::move(option);
  }
  if (best) return StatusOf(job, *best);
  if (!nearest) return Fail(*shares);
  if (gpus.allow_overcommit && gpus.count > 0) {
    nearest->why = "started although it " + nearest->why + " (allowOvercommit)";
    return StatusOf(job, *nearest);
  }
  return Fail(ErrorCode::kResourceExhausted,
              "DoesNotFit: " + FormatCount(request.shape.parameters) + " as " +
                  std::string(api::ToString(nearest->strategy)) + " on " + std::to_string(nearest->gpus) + " x " +
                  nearest->product + " needs " + FormatBinaryBytes(static_cast<double>(nearest->bytes.total)) + " of " +
                  FormatBinaryBytes(static_cast<double>(nearest->bytes.capacity)) +
                  " usable per GPU; ways out: " + WaysOut(request, *candidates, job.spec.UsesBundledTrainer()));
}

}  // namespace trainyard::sizing
