// The pod that runs a checkpoints command, as Kubernetes JSON. Thread-safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/api/training_job.h"
#include "operator/base/error.h"

namespace trainyard::cli {

// Label trainyard.dev/role of such pods.
inline constexpr const char* kRole = "checkpoints";

struct PodRequest {
  std::string name;
  std::string image;                 // empty: that of the job's trainer
  std::string node;                  // where it has to run; empty: anywhere
  std::vector<std::string> command;  // after "trainyard checkpoints", as RunInCluster takes it
};

// Mounts those volumes of the job that the command names and nothing else of it; as restricted as the job's own pods,
// pulled and placed like them. It belongs to the job, which takes it along when it is deleted, and is none of those
// that train it. Errors: kFailedPrecondition for a job without spec.checkpoint when its directory is asked for, without
// a volume of that name, with a volume that is gone with each pod, or of which no image is known.
Result<nlohmann::json> CheckpointsPod(const api::TrainingJob& job, const PodRequest& request);

// Why a pod that does not run never will ("ErrImagePull: ..."); empty: it may yet.
std::string WhyItCannotRun(const nlohmann::json& pod);
// What a pod that does not run waits for, in words.
std::string WhyItWaits(const nlohmann::json& pod);

}  // namespace trainyard::cli
