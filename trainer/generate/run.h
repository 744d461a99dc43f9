// trainyard-generate: text out of a model on this machine. Thread-safety: call once, from the main thread.
#pragma once

#include <string_view>

namespace trainyard::generate {

// `request`: JSON of request.h. Text goes to standard output as it comes, or one JSON value at the end; errors are one
// line on standard error. Returns an exit code of `trainyard`: 0; 1 for damage, a bug or no memory; 2 for what cannot
// be right; 3 for output that cannot be written to or a disk that does not answer; 4 for what is not there. Throws
// nothing.
int Run(std::string_view request);

}  // namespace trainyard::generate
