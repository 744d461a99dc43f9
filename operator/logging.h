// How the operator logs: lines for people, or one JSON object per line for collectors. Thread-safety: call once, before
// any thread logs.
#pragma once

#include <string>

#include "operator/base/error.h"

namespace trainyard {

// `level`: trace, debug, info, warn, error. `format`: text, json. Both go to standard error.
// Error: kInvalidArgument, naming what is known.
Status SetUpLogging(const std::string& level, const std::string& format);

}  // namespace trainyard
