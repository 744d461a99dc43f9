// The parts of a pod: environment, volumes, security. Private to the room. Pure. Thread-safety: pure functions.
#pragma once

#include <nlohmann/json.hpp>

#include "operator/api/training_job.h"
#include "operator/lifecycle/lifecycle.h"

namespace trainyard::lifecycle {

// Seconds between SIGTERM and SIGKILL: enough to finish a step and save, at most spec.recovery.maxGraceSeconds.
int64_t GraceSeconds(const api::TrainingJob& job);

// env of the container `trainer` of node rank `node_rank`: rendezvous (ours always wins), then the user's own.
nlohmann::json Environment(const api::TrainingJob& job, int64_t node_rank);

nlohmann::json Volumes(const api::TrainingJob& job);
nlohmann::json VolumeMounts(const api::TrainingJob& job);

// Restricted for our own image; what a user's image can bear otherwise.
nlohmann::json PodSecurity(const api::TrainingJob& job);
nlohmann::json ContainerSecurity(const api::TrainingJob& job);

}  // namespace trainyard::lifecycle
