// The Kubernetes objects of an attempt: one pod per node, created gated and pinned, and the headless Service of node
// rank 0. Pure. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "operator/api/training_job.h"
#include "operator/lifecycle/lifecycle.h"

namespace trainyard::lifecycle {

// The pod of node rank `node_rank` of attempt job.status.attempt, from job.status.placement and job.status.plan, both
// of which must be set. It carries our gate, a required node affinity on metadata.name, restartPolicy Never, the
// environment and labels of trainer/contract, the resolved job as an annotation, and under all that spec.podTemplate.
nlohmann::json BuildPod(const api::TrainingJob& job, int64_t node_rank, const Options& options);

// The pod that removes the checkpoints of a deleted job, where the job's own pods could run: it mounts their volume
// alone. No GPU, no gate. spec.checkpoint must be set, with its path.
nlohmann::json BuildRemovalPod(const api::TrainingJob& job, const Options& options);
std::string RemovalPodName(const api::TrainingJob& job);

// Headless, publishes not-ready addresses, selects node rank 0 only.
nlohmann::json BuildService(const api::TrainingJob& job);

// What a pod with `gpus` GPUs asks for besides them, in base units (cpu in milli). Memory is what `trainer` gives every
// process (code, data loader, arenas); for the bundled trainer also its share of a checkpoint, which a save copies to
// host memory, what is offloaded, and on the CPU all that the plan counts as GPU memory. State that is offloaded to an
// emptyDir is ephemeral storage. What spec.podTemplate asks for is in it, as kube-scheduler counts it; what a fabric's
// profile asks for is not, since that follows from the nodes.
std::map<std::string, int64_t> PodResources(int64_t gpus, const api::TrainingJob& job, const api::PlanStatus& plan,
                                            const api::TrainerStatus& trainer);

// What the pods of a first claim of this generation run and ask for.
api::TrainerStatus NewTrainer(const api::TrainingJob& job, const Options& options);

}  // namespace trainyard::lifecycle
