#include "trainer/loop/cadence.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "trainer/contract/cadence.h"

namespace trainyard::loop {
namespace {

constexpr size_t kSteps = 31;  // whose median counts

double Seconds(Cadence::Time from, Cadence::Time to) { return std::chrono::duration<double>(to - from).count(); }

}  // namespace

Cadence::Cadence(const config::Checkpoint& job, Time now) : job_(job), began_(now) {
  if (job.cost_seconds < 0) return;
  cost_ = job.cost_seconds;
  save_seconds_ = job.save_seconds;
}

std::optional<double> Cadence::MedianStep() const {
  if (steps_.empty()) return std::nullopt;
  std::vector<double> sorted(steps_.begin(), steps_.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

void Cadence::Stepped(double seconds, bool saving) {
  if (saving) {
    beside_ += seconds;
    ++beside_count_;
    return;
  }
  steps_.push_back(seconds);
  if (steps_.size() > kSteps) steps_.pop_front();
}

void Cadence::Began(Time now) {
  began_ = now;
  beside_ = 0;
  beside_count_ = 0;
}

void Cadence::Saved(double seconds, double stall_seconds) {
  // The stall within a step is part of what that step was slower by.
  const double slower = MedianStep() ? beside_ - static_cast<double>(beside_count_) * *MedianStep() : 0;
  const double cost = std::max(stall_seconds, slower);
  cost_ = cost_ ? (*cost_ + cost) / 2 : cost;
  save_seconds_ = save_seconds_ ? (*save_seconds_ + seconds) / 2 : seconds;
}

std::optional<double> Cadence::interval_seconds() const {
  if (job_.every_seconds > 0) return job_.every_seconds;
  if (job_.mean_seconds_between_failures <= 0) return std::nullopt;
  if (!cost_) return contract::kFirstSaveSeconds;
  return contract::SaveInterval(*cost_, job_.mean_seconds_between_failures, *save_seconds_, MedianStep().value_or(0));
}

bool Cadence::Due(Time now) const {
  const auto interval = interval_seconds();
  return interval && Seconds(began_, now) >= *interval;
}

std::optional<int64_t> Cadence::NextStep(int64_t step, Time now) const {
  std::optional<int64_t> next;
  const auto consider = [&](int64_t candidate) { next = next ? std::min(*next, candidate) : candidate; };
  // Multiples of keep_every_steps are saved whatever the cadence is.
  for (const int64_t every : {job_.every_steps, job_.keep_every_steps}) {
    if (every > 0) consider(step - step % every + every);
  }
  const auto interval = interval_seconds();
  const auto median = MedianStep();
  if (!interval) return next;
  // Until a step has been measured it may as well be due sooner.
  if (!median || *median <= 0) return std::nullopt;
  const double steps = std::ceil(std::max(0.0, *interval - Seconds(began_, now)) / *median);
  consider(step + std::max<int64_t>(1, static_cast<int64_t>(std::min(steps, 1e15))));
  return next;
}

}  // namespace trainyard::loop
