// Where the controller learns how far a running job is: the launcher of node rank 0 answers over HTTP in a cluster and
// leaves a file under local/. Thread-safety: Read() may be called from any thread.
#pragma once

#include <functional>
#include <string>

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
  // A source that answers later than it is asked calls `listener` when a job should be read again: after the first
  // answer and when the phase changes. Set once, before the first Read(). One that answers at once never calls it.
  virtual void SetListener(std::function<void(const std::string& job_uid)> /*listener*/) {}
};

}  // namespace trainyard::cluster
