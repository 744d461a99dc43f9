// The choice among sizes and products: by goal and limits, with the range that makes sense and what came next. Private
// to the room. Thread-safety: as Evaluator.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/sizing/choose.h"

namespace trainyard::sizing {

// Where adding GPUs of a product stops to pay: the next doubling gains less than kLeastGain, or a limit is met.
inline constexpr double kLeastGain = 1.5;
struct Limit {
  int64_t gpus = 0;
  std::string why;  // "8 -> 16 gains 1.31x", "the global batch of 8 sequences"
};
Limit LimitByGain(Evaluator& evaluator, const Candidate& candidate, int64_t from);

// The best trial by the request's goal among the sizes of CountsFor of all candidates: it fits and keeps the limits;
// what the cluster holds and what takes exactly the global batch comes first.
// kCheapest: least money; of those within 0.5 % the fastest, then the fewest GPUs, then the simpler method.
// kFastest: least time, up to most_gpus or the given counts, else up to LimitByGain; of those within 0.5 % the
// cheapest, then the fewest GPUs, then the simpler method. Nothing: `why_none` says what no size does.
std::optional<Trial> Search(Evaluator& evaluator, std::string* why_none);

// The nearest to fitting of all sizes: least bytes over capacity.
std::optional<Trial> Nearest(Evaluator& evaluator);

PlanRange RangeOf(Evaluator& evaluator, const Trial& chosen);
std::vector<RunnerUp> RunnersUp(Evaluator& evaluator, const Trial& chosen);

}  // namespace trainyard::sizing
