// The flags of `trainyard plan` as given, and how they and the files they name become a request.
// Thread-safety: plain values; RequestFrom reads files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "operator/base/error.h"
#include "operator/sizing/plan.h"

namespace trainyard::cli {

struct PlanFlags {
  std::string model;
  std::string config;
  std::string job;
  std::vector<std::string> products;
  std::vector<int64_t> counts;
  std::optional<int64_t> per_node;
  std::string strategy;
  std::optional<int64_t> sequence_length;
  std::optional<int64_t> micro_batch;
  std::optional<int64_t> global_batch;
  std::string precision;
  std::optional<double> single_gpu_hours;
  std::string tokens;
  std::vector<std::string> prices;
  bool round_hours = false;
  std::string output = "text";
};

// Errors: kInvalidArgument or kNotFound, one line that names the flag, or the file and the field; several errors of a
// job are joined by newlines.
Result<sizing::PlanRequest> RequestFrom(const PlanFlags& flags);

}  // namespace trainyard::cli
