// Where the controller learns how far a running job is: the launcher of node rank 0 answers over HTTP in a cluster and
// leaves a file under local/. Thread-safety: Read() may be called from any thread.
#pragma once

#include <nlohmann/json.hpp>

#include "operator/api/snapshot.h"
#include "operator/base/error.h"

namespace trainyard::cluster {

class ProgressSource {
 public:
  virtual ~ProgressSource() = default;
  // Status JSON of trainer/contract. Errors: kNotFound while there is none yet (a user's own program never has one),
  // kUnavailable, kDeadlineExceeded, kInvalidArgument for a reply that is no such JSON. None of them ever fails a job.
  virtual Result<nlohmann::json> Read(const api::PodSnapshot& rank0_pod) = 0;
};

}  // namespace trainyard::cluster
