// What the pure rooms see of pods and nodes: a few plain fields, projected from the Kubernetes objects by cluster/.
// Thread-safety: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "operator/base/clock.h"

namespace trainyard::api {

inline constexpr const char* kGpuResource = "nvidia.com/gpu";

enum class PodPhase { kPending, kRunning, kSucceeded, kFailed, kUnknown };

struct PodSnapshot {
  std::string ns;
  std::string name;
  std::string uid;
  std::string resource_version;
  std::string owner_uid;      // UID of the controlling TrainingJob; empty for foreign pods
  std::string job_uid;        // label trainyard.dev/job-uid
  int64_t attempt = 0;        // label trainyard.dev/attempt
  int64_t node_rank = -1;     // label trainyard.dev/node-rank
  bool gated = false;         // carries our scheduling gate
  bool foreign_gate = false;  // carries a gate of someone else
  std::string pinned_node;    // from our required node affinity
  std::string node;           // spec.nodeName, empty until bound
  PodPhase phase = PodPhase::kPending;
  bool deleting = false;  // has a deletionTimestamp
  bool ready = false;
  int64_t grace_seconds = 30;  // spec.terminationGracePeriodSeconds
  // Container `trainer`, once terminated.
  std::optional<int> exit_code;
  std::string termination_message;  // contract JSON, or free text
  std::string reason;               // pod or waiting reason: Evicted, UnexpectedAdmissionError, ImagePullBackOff ...
  std::string message;
  std::string ip;
  int64_t gpus = 0;                         // requested, as the scheduler counts them
  std::map<std::string, int64_t> requests;  // every resource in base units (cpu in milli)
  std::optional<TimePoint> creation_time;
  std::optional<TimePoint> start_time;

  bool Terminal() const { return phase == PodPhase::kSucceeded || phase == PodPhase::kFailed; }
};

struct Taint {
  std::string key;
  std::string value;
  std::string effect;
};

struct NodeSnapshot {
  std::string name;
  std::map<std::string, std::string> labels;
  std::map<std::string, std::string> annotations;
  std::vector<Taint> taints;
  bool ready = false;
  bool unschedulable = false;
  bool deleting = false;
  std::map<std::string, std::string> conditions;   // type -> status
  std::map<std::string, int64_t> allocatable;      // base units (cpu in milli)
  std::optional<TimePoint> ready_transition_time;  // when Ready last changed
};

struct PriorityClass {
  std::string name;
  int64_t value = 0;            // higher is more important
  bool preempts = true;         // preemptionPolicy is not Never
  bool global_default = false;  // of jobs and pods that name none
};

}  // namespace trainyard::api
