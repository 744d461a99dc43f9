// Jobs that save at some cadence while failures end their attempts: what share of the time is training that counts, and
// the best fixed cadence, found by search with the same failures. Pure but for Seed. Thread-safety: pure functions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <utility>
#include <vector>

namespace trainyard::testing {

inline uint64_t Seed() {
  const char* given = std::getenv("TRAINYARD_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : 20261130;
  std::printf("seed %llu (set TRAINYARD_TEST_SEED to change it)\n", static_cast<unsigned long long>(seed));
  return seed;
}

// All in seconds.
struct Job {
  double work = 0;     // to be done
  double mtbf = 0;     // of the gang, exponentially distributed
  double cost = 0;     // that a save takes from training
  double write = 0;    // from the start of a save until it counts
  double restart = 0;  // from a failure until training goes on
};

// Until the failure of each attempt, the same for every cadence that is tried.
inline std::vector<double> Lives(const Job& job, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::exponential_distribution<double> life(1 / job.mtbf);
  std::vector<double> lives;
  for (double sum = 0; sum < 20 * job.work;) sum += lives.emplace_back(life(rng));
  return lives;
}

// Share of the wall time that is training whose result counts. `interval`: seconds of training before the save of that
// number of an attempt, both counted from 0; it is asked for once the save before it has been made.
inline double Goodput(const Job& job, const std::vector<double>& lives,
                      const std::function<double(size_t, size_t)>& interval) {
  double wall = 0, saved = 0;
  for (size_t attempt = 0; attempt < lives.size(); ++attempt) {
    double up = 0, done = saved, pending = saved, counts_at = 0;
    for (size_t save = 0;; ++save) {
      const double stretch = std::min(interval(attempt, save), job.work - done);
      if (up + stretch > lives[attempt]) break;
      up += stretch;
      done += stretch;
      if (counts_at <= up) saved = pending;
      if (done >= job.work) return job.work / (wall + up);
      pending = done;
      counts_at = up + job.write;
      up += job.cost;
      if (up > lives[attempt]) break;
    }
    if (counts_at <= lives[attempt]) saved = std::max(saved, pending);
    wall += lives[attempt] + job.restart;
  }
  return saved / wall;  // a cadence with which it never ends
}

inline double MeanGoodput(const Job& job, const std::vector<std::vector<double>>& runs, double every) {
  double sum = 0;
  for (const auto& lives : runs) sum += Goodput(job, lives, [every](size_t, size_t) { return every; });
  return sum / static_cast<double>(runs.size());
}

// The best of a fine grid of fixed cadences, from a tenth of the formula's to ten times it.
inline std::pair<double, double> BestFixed(const Job& job, const std::vector<std::vector<double>>& runs) {
  const double middle = std::sqrt(2 * job.cost * job.mtbf);
  std::pair<double, double> best;
  for (double factor = 0.1; factor < 10; factor *= 1.05) {
    const double goodput = MeanGoodput(job, runs, middle * factor);
    if (goodput > best.second) best = {middle * factor, goodput};
  }
  return best;
}

inline const std::vector<Job> kJobs = {
    {.work = 4e6, .mtbf = 20'000, .cost = 20, .write = 60, .restart = 120},     // a large gang on poor nodes
    {.work = 2e7, .mtbf = 100'000, .cost = 2, .write = 90, .restart = 300},     // asynchronous saves, long writes
    {.work = 3e5, .mtbf = 1'800, .cost = 15, .write = 15, .restart = 60},       // spot nodes
    {.work = 2e7, .mtbf = 100'000, .cost = 300, .write = 300, .restart = 600},  // a slow disk
    {.work = 2e5, .mtbf = 1'000, .cost = 100, .write = 100, .restart = 30},     // where the first order is poor
};

}  // namespace trainyard::testing
