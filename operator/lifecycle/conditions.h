// Conditions of a job: a fixed set of types, no history, no churn. Private to the room. Thread-safety: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "operator/api/training_job.h"

namespace trainyard::lifecycle {

inline constexpr const char* kPlanned = "Planned";
inline constexpr const char* kPlaced = "Placed";
inline constexpr const char* kReady = "Ready";
inline constexpr const char* kSuspended = "Suspended";
inline constexpr const char* kComplete = "Complete";
inline constexpr const char* kFailed = "Failed";
inline constexpr const char* kCheckpointHealthy = "CheckpointHealthy";

const api::Condition* FindCondition(const api::JobStatus& status, std::string_view type);
bool ConditionIs(const api::JobStatus& status, std::string_view type, std::string_view value);

// Adds or changes one condition; the transition time moves only when `value` changes. True if it or its reason changed.
bool SetCondition(api::JobStatus& status, std::string_view type, bool value, std::string reason, std::string message,
                  int64_t generation, TimePoint now);

// Bytes of what an API server says, of which the cause is often the end.
inline constexpr size_t kRefusalText = 500;

// One line of valid printable text of at most `limit` bytes, from whatever a container wrote.
std::string OneLine(std::string_view text, size_t limit = 300);

}  // namespace trainyard::lifecycle
