// TrainingJobs from YAML or JSON files. Thread-safety: free functions.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "operator/api/training_job.h"

namespace trainyard::cli {

// The jobs of one file and everything that is wrong with it; the jobs are usable only if `errors` is empty.
struct JobFile {
  std::vector<api::TrainingJob> jobs;  // defaults applied
  std::vector<std::string> errors;     // one line each, opened by the file's name
};

// Changes a job between reading and validating it; appends what it cannot do.
using AdjustJob = std::function<void(api::TrainingJob& job, std::vector<std::string>& errors)>;

// Reads and validates every document of `path` ("-" reads standard input). No document at all is an error.
JobFile LoadJobFile(const std::string& path, const AdjustJob& adjust = {});

}  // namespace trainyard::cli
