#include <algorithm>
#include <functional>
#include <utility>

#include "operator/base/quantity.h"
#include "operator/sizing/advice.h"
#include "operator/sizing/words.h"

namespace trainyard::sizing {
namespace {

constexpr size_t kWays = 3;
constexpr int64_t kShortest = 256;  // tokens; shorter sequences are another task

// "activations are the largest part, 95.1 GiB of 143.2 GiB".
std::string LargestTerm(const PerGpuBytes& b) {
  const std::pair<const char*, int64_t> terms[] = {{"weights", b.weights},         {"gradients", b.gradients},
                                                   {"the master copy", b.master},  {"optimizer states", b.optimizer},
                                                   {"activations", b.activations}, {"logits", b.logits},
                                                   {"buffers", b.buffers},         {"overhead", b.overhead}};
  const auto* largest = std::max_element(std::begin(terms), std::end(terms),
                                         [](const auto& a, const auto& c) { return a.second < c.second; });
  return std::string(largest->first) + " take most of it, " + Gib(largest->second);
}

struct Found {
  WayOut way;
  double price = 0;  // money per token, relative where nothing has a price
};

// Plans `changed` and keeps the cheapest size that fits.
void Try(const PlanRequest& changed, const std::string& what, std::vector<Found>& found) {
  std::vector<Candidate> candidates;
  for (const ProductSupply& supply : changed.supply) {
    auto candidate = CandidateOf(changed, supply);
    if (!candidate) return;
    candidate->index = candidates.size();
    candidates.push_back(*candidate);
  }
  Evaluator evaluator(changed, candidates);
  auto trial = Search(evaluator, nullptr);
  if (!trial) return;
  WayOut way;
  way.option = evaluator.OptionOf(*trial);
  way.what = what + ": " + MethodOf(way.option) + " on " + Sized(trial->gpus, trial->candidate->product->name) +
             " needs " + Gib(trial->bytes) + " of " + Gib(trial->candidate->capacity);
  const double tokens = static_cast<double>(changed.sequence_length);
  found.push_back({std::move(way), trial->hours ? trial->money : trial->money / tokens});
}

}  // namespace

WaysOut WaysOutOf(Evaluator& evaluator, const Trial& nearest) {
  const PlanRequest& asked = evaluator.request();
  const PlanOption option = evaluator.OptionOf(nearest);
  WaysOut out;
  out.too_big = FormatCount(asked.shape.parameters) + " as " + MethodOf(option) + " on " +
                Sized(option.gpus, option.product) + " needs " + Gib(option.bytes.total) + " of " +
                Gib(option.bytes.capacity) + " usable per GPU, " + Gib(option.bytes.total - option.bytes.capacity) +
                " too much: " + LargestTerm(option.bytes);
  // Limits of time and money are another question than what fits; only the cheapest of each kind is of interest.
  PlanRequest base = asked;
  base.goal = api::Goal::kCheapest;
  base.max_hours.reset();
  base.max_cost.reset();
  std::vector<Found> found;
  auto with = [&](const std::string& what, const std::function<void(PlanRequest&)>& change) {
    PlanRequest changed = base;
    change(changed);
    Try(changed, what, found);
  };
  with("More GPUs", [](PlanRequest& r) {
    r.counts.clear();
    r.least_gpus = 1;
    r.most_gpus = 0;
  });
  if (asked.strategy != api::Strategy::kAuto && asked.strategy != api::Strategy::kFsdp) {
    with("Sharding all state", [](PlanRequest& r) { r.strategy = api::Strategy::kFsdp; });
  }
  if (asked.micro_batch > 1) {
    with("Micro batch 1", [](PlanRequest& r) { r.micro_batch = 1; });
  }
  for (int64_t sequence = asked.sequence_length / 2; sequence >= kShortest; sequence /= 2) {
    const size_t before = found.size();
    with("Sequences of " + std::to_string(sequence), [&](PlanRequest& r) { r.sequence_length = sequence; });
    if (found.size() > before) break;
  }
  auto tried = [](const auto& list, auto value) { return std::find(list.begin(), list.end(), value) != list.end(); };
  if (!tried(asked.checkpointing, Checkpointing::kFull)) {
    with("Recomputing activations", [](PlanRequest& r) { r.checkpointing.push_back(Checkpointing::kFull); });
  }
  if (!tried(asked.offloads, Offload::kCpu)) {
    with("Optimizer on the host", [](PlanRequest& r) { r.offloads.push_back(Offload::kCpu); });
  }
  if (!asked.bundled_trainer) {
    if (asked.adapter.type == AdapterType::kNone) {
      const size_t before = found.size();
      with("LoRA", [](PlanRequest& r) { r.adapter.type = AdapterType::kLora; });
      if (found.size() == before) with("QLoRA", [](PlanRequest& r) { r.adapter.type = AdapterType::kQLora; });
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.price < b.price; });
  for (size_t i = 0; i < found.size() && i < kWays; ++i) out.ways.push_back(std::move(found[i].way));
  return out;
}

}  // namespace trainyard::sizing
