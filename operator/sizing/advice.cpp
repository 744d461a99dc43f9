#include "operator/sizing/advice.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "operator/base/quantity.h"
#include "operator/sizing/words.h"

namespace trainyard::sizing {
namespace {

constexpr double kPoorScaling = 0.70;  // planned efficiency below which a plan warns
constexpr int64_t kLongest = int64_t{1} << 20;

// The longest sequence, in doublings of the one asked for, that fits at micro batch 1.
int64_t LongestSequence(Evaluator& evaluator, const Trial& trial) {
  int64_t longest = evaluator.request().sequence_length;
  while (2 * longest <= kLongest && evaluator.BytesAt(trial, 1, 2 * longest).Fits()) longest *= 2;
  return longest;
}

int64_t LargestMicroBatch(Evaluator& evaluator, const Trial& trial) {
  const int64_t sequence = evaluator.request().sequence_length;
  int64_t largest = trial.batch.micro_batch;
  while (largest * 2 * trial.batch.ranks <= evaluator.request().global_batch &&
         evaluator.BytesAt(trial, 2 * largest, sequence).Fits()) {
    largest *= 2;
  }
  return largest;
}

std::string Links(const GpuProduct& product) {
  switch (product.link) {
    case Link::kNvswitch:
    case Link::kNvlinkRack:
      return "NVLink";
    case Link::kXgmi:
      return "Infinity Fabric";
    case Link::kNvlinkBridge:
    case Link::kPcie:
      return "PCIe";
    case Link::kPcieNoPeer:
      return "PCIe without peer-to-peer copies";
    case Link::kProcess:
      return "loopback";
  }
  return "PCIe";
}

std::string Reach(const Trial& trial) {
  return Times(static_cast<double>(trial.gpus) * trial.planned) + " one GPU at " + Percent(trial.planned);
}

// The method that leaves most room on a size.
Trial Thriftiest(Evaluator& evaluator, const Trial& trial) {
  const std::vector<Trial> all = evaluator.All(*trial.candidate, trial.gpus);
  return *std::min_element(all.begin(), all.end(), [](const Trial& a, const Trial& b) { return a.bytes < b.bytes; });
}

// "Two GPUs are the easiest to debug: 1.8x one GPU at 90 %, 12.3 GiB per GPU to spare."
void AdviseOnSize(Evaluator& evaluator, const Candidate& candidate, int64_t n, std::vector<std::string>& out) {
  const Trial* trial = evaluator.Best(candidate, n);
  if (trial == nullptr || n > candidate.gpus_per_node || candidate.product->Simulated()) return;
  const std::string& name = candidate.product->name;
  if (!trial->fits) {
    out.push_back(Sized(n, name) + " are " + Gib(trial->bytes - candidate.capacity) + " per GPU short even with " +
                  NameOf(evaluator.MethodOf(*trial)) + ".");
    return;
  }
  const std::string spare = Gib(candidate.capacity - trial->bytes) + " per GPU to spare";
  if (n == 2) {
    out.push_back("Two GPUs are the easiest to debug: " + Reach(*trial) + ", " + spare + ".");
  } else if (n == 4) {
    const Trial roomy = Thriftiest(evaluator, *trial);
    out.push_back("Four GPUs leave room for batch and sequence: " + Reach(*trial) + ", " + spare + "; " +
                  NameOf(evaluator.MethodOf(roomy)) + " takes micro batches up to " +
                  std::to_string(LargestMicroBatch(evaluator, roomy)) + ", or sequences up to " +
                  std::to_string(LongestSequence(evaluator, roomy)) + ".");
  } else if (candidate.product->HasNvlinkInNode()) {
    out.push_back("Eight GPUs suit one server whose " + Links(*candidate.product) +
                  " joins them all: " + Reach(*trial) + ", " + spare + ".");
  } else {
    out.push_back("Eight GPUs here share " + Links(*candidate.product) + ": " + Reach(*trial) + ", " + spare +
                  "; a server with NVLink suits them better.");
  }
}

std::string BatchAdvice(const PlanRequest& request, const Trial& chosen) {
  const Batch& b = chosen.batch;
  const int64_t tokens = b.effective * request.sequence_length;
  if (request.bundled_trainer) {
    return "A step takes " + std::to_string(b.effective) + " sequences (" + FormatCount(tokens) +
           " tokens) at every number of GPUs, so learning rate and schedule stay as they are when it changes.";
  }
  std::string text = "Your program takes micro batch " + std::to_string(b.micro_batch) + " x accumulation " +
                     std::to_string(b.accumulation) + " x " + std::to_string(b.ranks) +
                     " ranks = " + std::to_string(b.effective) + " sequences (" + FormatCount(tokens) +
                     " tokens) per step";
  return text + "; at another number of GPUs change the accumulation to keep that, or scale the learning rate: with " +
         "the square root of the batch for Adam, in proportion for SGD.";
}

}  // namespace

std::vector<std::string> AdviceFor(Evaluator& evaluator, const Trial& chosen) {
  std::vector<std::string> advice;
  const PlanRequest& request = evaluator.request();
  for (int64_t n : {2, 4, 8}) {
    if (!request.counts.empty() && std::find(request.counts.begin(), request.counts.end(), n) == request.counts.end()) {
      continue;
    }
    AdviseOnSize(evaluator, *chosen.candidate, n, advice);
  }
  advice.push_back(BatchAdvice(request, chosen));
  if (!chosen.candidate->product->Simulated() && !chosen.hours) {
    advice.push_back(
        "With the hours that one GPU takes, or the tokens to train on, hours are known; with prices, costs.");
  }
  return advice;
}

std::vector<std::string> WarningsFor(const PlanRequest& request, const std::vector<PlanOption>& shown,
                                     const PlanOption* chosen) {
  std::vector<std::string> warnings;
  std::set<std::string> products;  // one sentence for each is enough: the largest size tells most
  for (auto o = shown.rbegin(); o != shown.rend(); ++o) {
    if (!o->fits || o->gpus < 2 || o->efficiency >= kPoorScaling || o->offload != Offload::kNone ||
        !products.insert(o->product).second)
      continue;
    const GpuProduct* product = request.catalogue->Find(o->product);
    const bool far = o->gpus > o->per_node;
    const std::string over = far ? "a network between nodes" : product == nullptr ? "PCIe" : Links(*product);
    warnings.push_back(Sized(o->gpus, o->product) + " over " + over + ": " + Times(o->speedup) + ", not " +
                       std::to_string(o->gpus) + "x.");
  }
  if (request.tensor_parallel > 1 || request.pipeline_parallel > 1) {
    warnings.push_back(
        "The bundled trainer runs neither tensor nor pipeline parallelism yet: degrees over 1 are for a "
        "program of your own.");
  }
  if (chosen == nullptr) return warnings;
  if (!request.bundled_trainer && chosen->effective_batch != request.global_batch) {
    const int64_t ranks = chosen->gpus / (request.tensor_parallel * request.pipeline_parallel);
    std::string near;
    for (int64_t batch : NearestBatches(request.global_batch, chosen->micro_batch, ranks)) {
      near += (near.empty() ? "" : " and ") + std::to_string(batch);
    }
    warnings.push_back(std::to_string(ranks) + " ranks with micro batch " + std::to_string(chosen->micro_batch) +
                       " cannot take exactly " + std::to_string(request.global_batch) +
                       " sequences per step; possible are " + near + ". It is planned with " +
                       std::to_string(chosen->effective_batch) + ".");
  }
  if (chosen->tight) {
    warnings.push_back("Tight: " + Gib(chosen->bytes.total) + " of the " + Gib(chosen->memory_bytes) +
                       " that the driver reports, over 90 %.");
  }
  if (request.single_gpu_hours && chosen->checkpointing == Checkpointing::kFull) {
    warnings.push_back(
        "The hours count no recomputation beyond what your run on one GPU did; if it kept all "
        "activations, add up to a third.");
  }
  return warnings;
}

}  // namespace trainyard::sizing
