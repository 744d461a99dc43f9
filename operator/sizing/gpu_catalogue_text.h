// The text of gpu_catalogue.yaml, which the build compiles in. Private to the room. Thread-safety: a constant.
#pragma once

namespace trainyard::sizing {

extern const char* const kGpuCatalogueYaml;

}  // namespace trainyard::sizing
