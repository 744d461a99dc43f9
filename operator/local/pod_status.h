// What a kubelet writes into a pod's status. Thread-safety: pure functions on the given object.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "operator/base/clock.h"
#include "operator/local/process.h"

namespace trainyard::local {

inline constexpr const char* kPodIp = "127.0.0.1";

// Phase stays Pending; reason and message as kubectl shows them ("CreateContainerConfigError").
void SetWaiting(nlohmann::json& pod, const std::string& reason, const std::string& message, TimePoint now);
void SetRunning(nlohmann::json& pod, TimePoint now);
// Phase Succeeded for exit code 0, else Failed. An empty reason means Completed or Error.
void SetTerminated(nlohmann::json& pod, const ExitStatus& exit, std::string reason, const std::string& message,
                   TimePoint now);

}  // namespace trainyard::local
