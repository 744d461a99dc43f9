// Jobs as a table for people, with the columns of the CRD. Thread-safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "operator/api/training_job.h"

namespace trainyard::cli {

// `wide` adds STRATEGY and REASON.
std::string JobTable(const std::vector<api::TrainingJob>& jobs, bool wide, TimePoint now);

// "2.531", "18.2k", "1m 20s" and so on for one number each.
std::string FormatLoss(double loss);
std::string FormatRate(double tokens_per_second);

}  // namespace trainyard::cli
