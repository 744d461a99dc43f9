// From what a person names to the directory of one checkpoint. Thread-safety: free functions.
#pragma once

#include <iosfwd>
#include <string>

#include "operator/base/error.h"
#include "operator/cli/checkpoints/commands.h"

namespace trainyard::cli {

// True for the directory of one checkpoint: it is named like a step, or has a manifest.
bool IsCheckpoint(const std::string& path);

// The checkpoint that is meant. Newer ones that are bad are named on `err`. Errors: kNotFound; kDataLoss when there are
// only bad ones; kInvalidArgument for a step of what is one checkpoint already.
Result<std::string> Locate(const CheckpointRef& ref, std::ostream& err);

// Last part of a path: "step-00000200".
std::string BaseName(const std::string& path);

// Writes the error as one line; returns its exit code.
int Complain(const Error& error, std::ostream& err);

}  // namespace trainyard::cli
