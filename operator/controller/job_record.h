// A TrainingJob as the controller keeps it: the object as the server gave it, and what could be read of it.
// Thread-safety: immutable once made.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/api/training_job.h"
#include "operator/base/error.h"
#include "operator/cluster/cluster.h"
#include "operator/placement/yard.h"

namespace trainyard::controller {

struct JobRecord {
  std::string text;  // the object, as JSON: a tenth of what it takes as a tree
  cluster::ObjectKey key;
  std::string uid;
  std::string version;
  // When `problem` or `status_problem` is set, only metadata and status are filled in, as far as they could be read.
  api::TrainingJob job;
  std::string problem;  // why the spec or the metadata cannot be read; empty: they can
  // Why the status cannot be read. Such a job is left as it is: whatever was written over its status would forget what
  // it says of the attempt, and of fields that only a newer operator knows.
  std::string status_problem;
  std::vector<placement::Booking> bookings;  // of its live attempt, so that other jobs keep off

  nlohmann::json Object() const { return nlohmann::json::parse(text); }
};
using JobPtr = std::shared_ptr<const JobRecord>;

// Never fails: a malformed object becomes a record with a problem.
JobRecord MakeJobRecord(const nlohmann::json& object);
// The status that tells the user of a problem of the spec: condition Planned=False. The rest stays as it was.
api::JobStatus StatusOfProblem(const JobRecord& record, TimePoint now);

}  // namespace trainyard::controller
