// The member "model" of the resolved job. Private to the room. Thread-safety: pure functions.
#pragma once

#include "trainer/config/config.h"
#include "trainer/config/json_reader.h"

namespace trainyard::config {

// Larger than any model, and small enough that products of two of them do not overflow.
inline constexpr int64_t kLargeSize = int64_t{1} << 30;

Model ReadModel(JsonReader r);

// What single sizes cannot tell.
void CheckModel(const Model& model, Problems& problems);
// Whether text, tokens and lengths of the job fit the sizes of its model.
void CheckModelFits(const Job& job, Problems& problems);

}  // namespace trainyard::config
