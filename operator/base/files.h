// Small text files. Thread-safety: free functions.
#pragma once

#include <string>

#include "operator/base/error.h"

namespace trainyard {

// Writes a new file beside `path` and renames it into place. Error: kUnavailable with path and reason.
Status WriteFileAtomically(const std::string& path, const std::string& text);
// The whole file. Errors: kNotFound, kInvalidArgument (a directory), kUnavailable.
Result<std::string> ReadFile(const std::string& path);
// Makes a directory and its parents; one that exists is fine. Error: kUnavailable.
Status MakeDirectories(const std::string& path);

}  // namespace trainyard
