// What spec.training must keep. Private to the room. Thread-safety: pure functions.
#pragma once

#include <cstdint>

#include "operator/api/checks.h"
#include "operator/api/training.h"

namespace trainyard::api {

inline constexpr int64_t kMaxSteps = 1'000'000'000;
inline constexpr int64_t kMaxSequence = 16'777'216;

void CheckTraining(Checks& c, const Training& training);

}  // namespace trainyard::api
