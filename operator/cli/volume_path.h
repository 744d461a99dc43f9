// VOLUME:PATH on a command line. Thread-safety: pure functions.
#pragma once

#include <string>

#include "operator/api/checkpoint.h"
#include "operator/base/error.h"

namespace trainyard::cli {

// "models:llama/export": a path below the mount of a volume of a job. Error: kInvalidArgument for anything else, for an
// absolute path and for one that leads out with "..".
Result<api::VolumeDirectory> ParseVolumePath(const std::string& text);

}  // namespace trainyard::cli
