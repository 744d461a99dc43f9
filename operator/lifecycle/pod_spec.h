// The parts of a pod: environment, volumes, security. Private to the room. Pure. Thread-safety: pure functions.
#pragma once

#include <nlohmann/json.hpp>

#include "operator/api/training_job.h"
#include "operator/lifecycle/lifecycle.h"

namespace trainyard::lifecycle {

// Seconds between SIGTERM and SIGKILL of a pod of this attempt, at most spec.recovery.maxGraceSeconds: a minute, the
// time to write two checkpoints at 100 MB/s per node, and the time of two steps and an evaluation, as long as the last
// measured step would take on the GPUs of this attempt. Where none was measured the plan's estimate counts, and nine
// minutes at least. A program that ends earlier waits for none of it.
int64_t GraceSeconds(const api::TrainingJob& job);
// The same without steps: for pods whose attempt is lost or never ran, which have nothing to finish and may hang.
int64_t LostGraceSeconds(const api::TrainingJob& job);

// env of the container `trainer` of node rank `node_rank`: rendezvous (ours always wins), then the user's own.
nlohmann::json Environment(const api::TrainingJob& job, int64_t node_rank);
// Adds what nobody has set: the settings of the fabric's profile that were frozen with the placement and, where the
// ranks compute on GPUs, that PyTorch's flight recorder, which those switch on, writes to the run directory.
void AddDefaults(const api::TrainingJob& job, nlohmann::json& env);

// Scratch volumes of every pod; validation refuses users' volumes that are called so (api::kReservedVolumePrefix).
inline constexpr const char* kRunVolume = "trainyard-run";
inline constexpr const char* kTmpVolume = "trainyard-tmp";

nlohmann::json Volumes(const api::TrainingJob& job);
nlohmann::json VolumeMounts(const api::TrainingJob& job);

// Restricted for our own image; what a user's image can bear otherwise.
nlohmann::json PodSecurity(const api::TrainingJob& job);
nlohmann::json ContainerSecurity(const api::TrainingJob& job);

}  // namespace trainyard::lifecycle
