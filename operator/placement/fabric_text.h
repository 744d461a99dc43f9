// The text of fabric_profiles.yaml, which the build compiles in. Private to the room. Thread-safety: a constant.
#pragma once

namespace trainyard::placement {

extern const char* const kFabricProfilesYaml;

}  // namespace trainyard::placement
