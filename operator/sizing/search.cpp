#include "operator/sizing/search.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "operator/sizing/words.h"

namespace trainyard::sizing {
namespace {

constexpr double kTie = 0.005;
constexpr double kSame = 1e-9;

// Why a trial that fits may not be taken; empty: it may.
std::string Forbidden(const PlanRequest& request, const Evaluator& evaluator, const Trial& trial) {
  if (request.max_hours && trial.hours && *trial.hours > *request.max_hours) {
    return "takes " + HoursText(*trial.hours) + ", the limit is " + HoursText(*request.max_hours);
  }
  if (evaluator.PricesKnown() && !trial.candidate->price) return "has no price";
  if (request.max_cost && trial.candidate->price && trial.money > *request.max_cost) {
    return "costs " + Grouped(trial.money) + ", the limit is " + Grouped(*request.max_cost);
  }
  return "";
}

// Lower comes first, whatever the goal: what the cluster holds, and what a program can split the batch into exactly.
int Tier(const PlanRequest& request, const Trial& trial) {
  return (trial.Held() ? 0 : 2) + (trial.batch.effective == request.global_batch ? 0 : 1);
}

const Trial* Pick(const std::vector<const Trial*>& trials, api::Goal goal) {
  const bool cheapest = goal == api::Goal::kCheapest;
  auto first = [cheapest](const Trial& t) { return cheapest ? t.money : t.time; };
  auto second = [cheapest](const Trial& t) { return cheapest ? t.time : t.money; };
  double least = first(*trials[0]);
  for (const Trial* t : trials) least = std::min(least, first(*t));
  const Trial* best = nullptr;
  for (const Trial* t : trials) {
    if (first(*t) > least * (1 + kTie)) continue;
    if (best == nullptr || second(*t) < second(*best) * (1 - kSame)) {
      best = t;
      continue;
    }
    if (second(*t) > second(*best) * (1 + kSame)) continue;
    if (std::tie(t->gpus, t->method) < std::tie(best->gpus, best->method)) best = t;
  }
  return best;
}

std::vector<const Trial*> AllSizes(Evaluator& evaluator) {
  std::vector<const Trial*> trials;
  for (const Candidate& candidate : evaluator.candidates()) {
    for (int64_t n : evaluator.CountsFor(candidate)) {
      if (const Trial* trial = evaluator.Best(candidate, n)) trials.push_back(trial);
    }
  }
  return trials;
}

// "26.1 h sooner, costs 1,667 more (63.80 per hour saved)".
std::string Against(const Trial& lost, const Trial& chosen) {
  const double times = chosen.time / lost.time;
  const double more = lost.money - chosen.money;
  const bool sooner = times > 1 + kTie;
  const bool later = times < 1 - kTie;
  std::string text;
  if (lost.hours && chosen.hours) {
    const double hours = *chosen.hours - *lost.hours;
    text = sooner ? HoursText(hours) + " sooner" : later ? HoursText(-hours) + " later" : "as fast";
    const bool priced = lost.candidate->price && chosen.candidate->price;
    const std::string unit = priced ? "" : " GPU-hours";
    const bool equal = std::abs(more) <= kTie * chosen.money;
    if (equal) return text + ", costs the same";
    text += more > 0 ? (sooner ? ", but " : ", and ") : (later ? ", but " : ", and ");
    text += priced ? "costs " + Grouped(std::abs(more)) : Grouped(std::abs(more)) + unit;
    text += more > 0 ? " more" : " less";
    if (sooner && more > 0) text += " (" + Grouped(more / hours) + unit + " per hour saved)";
    return text;
  }
  text = sooner ? Times(times) + " as fast" : later ? "at " + Percent(times) + " of the speed" : "as fast";
  const double share = lost.money / chosen.money - 1;
  if (std::abs(share) <= kTie) return text + ", for the same GPU time";
  return text + (sooner == (share > 0) ? ", but " : ", and ") + Percent(std::abs(share)) +
         (share > 0 ? " more GPU time" : " less GPU time");
}

std::string TooBig(const Evaluator& evaluator, const Trial& trial) {
  return NameOf(evaluator.MethodOf(trial)) + " on " + Sized(trial.gpus, trial.candidate->product->name) + ": " +
         Gib(trial.bytes - trial.candidate->capacity) + " over";
}

// True if nothing but the gain bounds how many GPUs the fastest takes.
bool StopsByGain(const PlanRequest& request) {
  return request.goal == api::Goal::kFastest && request.counts.empty() && request.most_gpus == 0;
}

std::string WhyLost(Evaluator& evaluator, const Trial& lost, const Trial& chosen) {
  const PlanRequest& request = evaluator.request();
  if (!lost.fits) return TooBig(evaluator, lost);
  const std::string what = Sized(lost.gpus, lost.candidate->product->name) + ": ";
  if (std::string why = Forbidden(request, evaluator, lost); !why.empty()) return what + why;
  if (request.counts.empty() && lost.gpus < request.least_gpus) {
    return what + "fewer than the " + std::to_string(request.least_gpus) + " GPUs that are the least asked for";
  }
  if (!lost.Held()) {
    return what + "the cluster has " + std::to_string(lost.candidate->nodes) +
           (lost.candidate->nodes == 1 ? " such node" : " such nodes");
  }
  if (lost.batch.effective != request.global_batch && chosen.batch.effective == request.global_batch) {
    return what + "takes " + std::to_string(lost.batch.effective) + " sequences per step, not " +
           std::to_string(request.global_batch);
  }
  if (StopsByGain(request) && lost.candidate == chosen.candidate && lost.gpus > chosen.gpus) {
    return what + "only " + Times(chosen.pace / lost.pace) + " as fast: doubling should gain " + Times(kLeastGain);
  }
  return what + Against(lost, chosen);
}

}  // namespace

Limit LimitByGain(Evaluator& evaluator, const Candidate& candidate, int64_t from) {
  std::string set_by;
  const int64_t most = evaluator.MostGpus(&set_by);
  int64_t n = from;
  while (true) {
    if (2 * n > most) {
      // The bound itself is worth as much as what is left of a doubling.
      const Trial* last = evaluator.Best(candidate, most);
      return {last != nullptr && last->fits && last->Held() ? most : n, set_by};
    }
    const Trial* now = evaluator.Best(candidate, n);
    const Trial* next = evaluator.Best(candidate, 2 * n);
    if (now == nullptr || next == nullptr || !next->fits) return {n, std::to_string(2 * n) + " cannot be shared out"};
    if (!next->Held() && now->Held()) return {n, "the cluster has no more of them"};
    const double gain = now->pace / next->pace;
    if (gain < kLeastGain) {
      return {n, std::to_string(n) + " -> " + std::to_string(2 * n) + " gains " + Times(gain)};
    }
    n *= 2;
  }
}

std::optional<Trial> Search(Evaluator& evaluator, std::string* why_none) {
  const PlanRequest& request = evaluator.request();
  const bool stop_by_gain = StopsByGain(request);
  std::vector<const Trial*> allowed;
  const Trial* nearest = nullptr;  // to the limits, of those that fit and break one
  int tier = 4;
  bool any = false;
  std::vector<int64_t> limits(evaluator.candidates().size(), 0);
  for (const Trial* trial : AllSizes(evaluator)) {
    if (!trial->fits) continue;
    any = true;
    if (stop_by_gain) {
      int64_t& limit = limits[trial->candidate->index];
      if (limit == 0) limit = LimitByGain(evaluator, *trial->candidate, trial->gpus).gpus;
      if (trial->gpus > limit) continue;
    }
    if (!Forbidden(request, evaluator, *trial).empty()) {
      // By how much the limit that is broken worst is broken.
      auto miss = [&](const Trial& t) {
        const double late = request.max_hours && t.hours ? *t.hours / *request.max_hours : 0;
        return std::max(late, request.max_cost && t.candidate->price ? t.money / *request.max_cost : 0);
      };
      if (nearest == nullptr || miss(*trial) < miss(*nearest)) nearest = trial;
      continue;
    }
    const int its = Tier(request, *trial);
    if (its < tier) allowed.clear();
    tier = std::min(tier, its);
    if (its == tier) allowed.push_back(trial);
  }
  if (!allowed.empty()) return *Pick(allowed, request.goal);
  if (why_none != nullptr) {
    *why_none = !any ? "nothing that was asked for fits"
                     : "no size keeps the limits; the nearest, " +
                           Sized(nearest->gpus, nearest->candidate->product->name) + ", " +
                           Forbidden(request, evaluator, *nearest);
  }
  return std::nullopt;
}

std::optional<Trial> Nearest(Evaluator& evaluator) {
  const Trial* best = nullptr;
  auto over = [](const Trial& t) { return static_cast<double>(t.bytes) / static_cast<double>(t.candidate->capacity); };
  for (const Trial* trial : AllSizes(evaluator)) {
    if (best == nullptr || over(*trial) < over(*best)) best = trial;
  }
  return best == nullptr ? std::nullopt : std::optional<Trial>(*best);
}

PlanRange RangeOf(Evaluator& evaluator, const Trial& chosen) {
  PlanRange range;
  range.product = chosen.candidate->product->name;
  range.minimum = chosen.gpus;
  for (int64_t n : evaluator.CountsFor(*chosen.candidate)) {
    const Trial* trial = evaluator.Best(*chosen.candidate, n);
    if (trial != nullptr && trial->fits) range.minimum = std::min(range.minimum, n);
  }
  if (auto smallest = evaluator.SmallestFull(*chosen.candidate)) range.minimum = std::min(range.minimum, *smallest);
  const Limit limit = LimitByGain(evaluator, *chosen.candidate, range.minimum);
  range.maximum = limit.gpus;
  range.why_maximum = limit.why;
  return range;
}

std::vector<RunnerUp> RunnersUp(Evaluator& evaluator, const Trial& chosen) {
  std::vector<Trial> lost;
  const Candidate& own = *chosen.candidate;
  // The same size by simpler means that do not fit: the last of them was the nearest.
  std::optional<Trial> simpler;
  for (const Trial& trial : evaluator.All(own, chosen.gpus)) {
    if (trial.method == chosen.method) break;
    if (!trial.fits) simpler = trial;
  }
  if (simpler) lost.push_back(*simpler);
  // The next sizes down and up.
  const std::vector<int64_t> counts = evaluator.CountsFor(own);
  auto size = [&](int64_t n) {
    const Trial* trial = evaluator.Best(own, n);
    const bool asked = std::find(counts.begin(), counts.end(), n) != counts.end();
    if (trial != nullptr && (asked || evaluator.request().counts.empty())) lost.push_back(*trial);
  };
  if (evaluator.request().counts.empty()) {
    if (chosen.gpus % 2 == 0) size(chosen.gpus / 2);
    if (chosen.gpus * 2 <= evaluator.MostGpus(nullptr)) size(chosen.gpus * 2);
    if (chosen.gpus * 4 <= evaluator.MostGpus(nullptr)) size(chosen.gpus * 4);
  } else {
    for (int64_t n : counts) {
      if (n != chosen.gpus) size(n);
    }
  }
  // The best size of every other product, the nearest to the choice first.
  std::vector<const Trial*> others;
  for (const Candidate& candidate : evaluator.candidates()) {
    if (candidate.index == own.index) continue;
    std::vector<const Trial*> fitting;
    const Trial* nearest = nullptr;
    for (int64_t n : evaluator.CountsFor(candidate)) {
      const Trial* trial = evaluator.Best(candidate, n);
      if (trial == nullptr) continue;
      if (trial->fits) fitting.push_back(trial);
      if (!trial->fits && (nearest == nullptr || trial->bytes < nearest->bytes)) nearest = trial;
    }
    const Trial* best = fitting.empty() ? nearest : Pick(fitting, evaluator.request().goal);
    if (best != nullptr) others.push_back(best);
  }
  const bool cheapest = evaluator.request().goal == api::Goal::kCheapest;
  std::stable_sort(others.begin(), others.end(), [&](const Trial* a, const Trial* b) {
    auto key = [&](const Trial& t) { return std::make_tuple(!t.fits, cheapest ? t.money : t.time); };
    return key(*a) < key(*b);
  });
  for (const Trial* other : others) lost.push_back(*other);
  std::vector<RunnerUp> runners;
  for (const Trial& trial : lost) {
    if (runners.size() == kRunnersUp) break;
    runners.push_back({evaluator.OptionOf(trial), WhyLost(evaluator, trial, chosen)});
  }
  return runners;
}

}  // namespace trainyard::sizing
