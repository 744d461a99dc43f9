#include "operator/lifecycle/failure_rate.h"

#include <algorithm>
#include <cmath>

#include "operator/lifecycle/conditions.h"
#include "operator/lifecycle/context.h"
#include "operator/lifecycle/lifecycle.h"
#include "operator/lifecycle/rounding.h"

namespace trainyard::lifecycle {
namespace {

// 1e12 at most, so that it can be written as an integer.
double Sane(double value) { return value > 0 ? std::min(value, 1e12) : 0; }

// A job that fails within seconds a few times and then runs for days must not save all the time: failures in a row have
// one cause.
constexpr double kLeastHoursPerFailure = 0.25;

std::string Whole(double value) { return std::to_string(std::llround(Sane(value))); }

std::string Seen(const api::Exposure& seen) {
  return std::to_string(seen.failures) + " in " + Whole(seen.gpu_hours) + " GPU-hours";
}

}  // namespace

double ProbableRate(double prior_rate, double failures, double exposure) {
  const double spread = std::log(10.0) * std::log(10.0);
  const auto excess = [&](double x) { return failures - prior_rate * std::exp(x) * exposure - x / spread; };
  // It falls with x, the logarithm of the rate over the prior one, and at these bounds has either sign.
  double low = -700, high = std::max(1.0, failures * spread + 1);
  high = std::min(high, 700.0);
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (excess(middle) > 0 ? low : high) = middle;
  }
  return prior_rate * std::exp((low + high) / 2);
}

FailureEstimate EstimateFailures(int64_t gpus, const api::Exposure& own, const api::Exposure& others) {
  const double size = static_cast<double>(std::max<int64_t>(1, gpus));
  const double per_gpu =
      ProbableRate(1 / kPriorGpuHours, Sane(static_cast<double>(others.failures)), Sane(others.gpu_hours));
  const double expected = size * per_gpu + 1 / kPriorJobHours;
  // Hours of this job count as hours at the size that it has now.
  const double failures = Sane(static_cast<double>(own.failures));
  const double rate =
      ProbableRate(expected, failures, std::max(Sane(own.gpu_hours) / size, kLeastHoursPerFailure * failures));
  return {.mean_hours = Round(1 / rate, 3).value_or(kPriorJobHours),
          .source = Whole(1 / expected) + " hours expected of " + Plural(gpus, "GPU") + "; failures seen: other jobs " +
                    Seen(others) + ", this job " + Seen(own)};
}

api::Exposure ExposureOf(const api::JobStatus& status, TimePoint now) {
  api::Exposure total = status.exposure.value_or(api::Exposure());
  const api::Condition* ready = FindCondition(status, kReady);
  if (ready == nullptr || ready->status != "True" || !status.placement) return total;
  const std::chrono::duration<double, std::ratio<3600>> hours =
      std::max(Milliseconds(0), now - ready->last_transition_time);
  total.gpu_hours += static_cast<double>(TotalGpus(*status.placement)) * hours.count();
  return total;
}

void EndExposure(api::JobStatus& status, TimePoint now) {
  if (!ConditionIs(status, kReady, "True")) return;
  api::Exposure total = ExposureOf(status, now);
  total.gpu_hours = std::round(total.gpu_hours * 1e4) / 1e4;
  status.exposure = total;
}

}  // namespace trainyard::lifecycle
