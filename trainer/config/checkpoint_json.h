// The part of the resolved job that says where checkpoints are, how often they are made and from which one to start.
// Thread-safety: functions of their arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainer/config/config.h"
#include "trainer/config/json_reader.h"

namespace trainyard::config {

inline constexpr int64_t kManySteps = int64_t{1} << 40;  // more than anyone will train

// The name of a volume under `key`.
std::string ReadVolumeName(JsonReader& r, const char* key);
// `volume` and `path`: a volume is one directory name, a path stays inside it.
VolumePath ReadVolumePath(JsonReader& r);
// Nothing when it is absent.
std::optional<Checkpoint> ReadCheckpoint(JsonReader r);
// What single fields cannot tell.
void CheckCheckpoint(const Checkpoint& checkpoint, Problems& problems);

}  // namespace trainyard::config
