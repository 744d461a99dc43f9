// How often an attempt is expected to fail: what the cadence of saves by Young and Daly hangs on. A prior from
// published figures, corrected by what other jobs of this cluster and this job itself have run through. Private to the
// room. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "operator/api/training_job.h"

namespace trainyard::lifecycle {

// GPU-hours between failures before anything was seen here. Published figures lie between 8,100 (A. Kokolis et al.,
// "Revisiting Reliability in Large-Scale Machine Learning Research Clusters", 2024: 7.9 hours on 1,024 GPUs) and 50,700
// ("The Llama 3 Herd of Models", 2024: 419 unexpected interruptions in 54 days on 16,384 GPUs); this is their geometric
// mean.
inline constexpr double kPriorGpuHours = 20'000;
// And what does not grow with the GPUs: maintenance, and people. Our own guess: once a month.
inline constexpr double kPriorJobHours = 720;

// The rate of a Poisson process of which `failures` events were seen in `exposure`, where it was thought to be
// `prior_rate` and known to a factor of ten: the most probable value under a log-normal prior with sigma ln 10, the
// root of failures - rate * exposure = ln(rate / prior_rate) / ln(10)^2. In one unit; `prior_rate` above 0.
double ProbableRate(double prior_rate, double failures, double exposure);

struct FailureEstimate {
  double mean_hours = 0;  // between two failures of a gang of that size; to 3 digits
  std::string source;     // one line
};
// `own`: what the job itself has run through, at whatever sizes; `others`: the other jobs of the cluster.
FailureEstimate EstimateFailures(int64_t gpus, const api::Exposure& own, const api::Exposure& others);

// Its pods run together no longer: to be called before condition Ready says so.
void EndExposure(api::JobStatus& status, TimePoint now);

}  // namespace trainyard::lifecycle
