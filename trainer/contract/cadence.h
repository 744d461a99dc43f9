// How often to save where nobody said: Young's and Daly's interval. Header only, no dependencies. Retold in
// docs/checkpoint-format.md. Thread-safety: pure functions.
#pragma once

#include <algorithm>
#include <cmath>

namespace trainyard::contract {

// Until the first save of a job has been measured nothing is known of its cost: it comes after so many seconds.
inline constexpr double kFirstSaveSeconds = 60;

// Seconds of training between the starts of two saves that lose the least time, to first order:
//   sqrt(2 * cost * mtbf)   (J. W. Young, 1974; J. T. Daly, "A higher order estimate of the optimum checkpoint interval
//                            for restart dumps", 2006, equation 20 without its second term)
// and the mean time between failures itself where a save costs more than half of that, which is where the formula gives
// as much (Daly's equation 37). Never shorter than `save_seconds`, from the start of a save to its commit, since one is
// written at a time, nor than `step_seconds`, since saves begin between steps.
// `cost_seconds`: what a save takes from training, its stall and what the steps beside it are slower by; 0 or more.
// `mtbf_seconds`: mean time between failures of the whole gang; above 0. What is no such number counts as 0.
inline double SaveInterval(double cost_seconds, double mtbf_seconds, double save_seconds, double step_seconds) {
  const auto sane = [](double value) { return value > 0 ? std::min(value, 1e15) : 0.0; };  // also where it is NaN
  const double cost = sane(cost_seconds), mtbf = sane(mtbf_seconds);
  const double best = std::min(std::sqrt(2 * cost * mtbf), mtbf);
  return std::max({best, sane(save_seconds), sane(step_seconds)});
}

// Share of the time that goes into saves, the work that failures lose and restarts, to first order, when saves start
// every `interval_seconds` and a restart takes `restart_seconds`: cost / interval + (interval / 2 + restart) / mtbf
// (Young's sum, of which SaveInterval() is the minimum). All in seconds and above 0, `restart_seconds` 0 or more.
inline double LostShare(double interval_seconds, double cost_seconds, double mtbf_seconds, double restart_seconds) {
  return cost_seconds / interval_seconds + (interval_seconds / 2 + restart_seconds) / mtbf_seconds;
}

}  // namespace trainyard::contract
