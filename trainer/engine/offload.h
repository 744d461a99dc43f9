// Where the state of an update is, and what an engine needs to know for it. Thread-safety: plain values.
#pragma once

#include <string>

namespace trainyard::engine {

class OffloadCalls;

enum class Offload {
  kNone,  // master weights and optimizer state on the device
  kCpu,   // in host memory
  kNvme,  // in a file of each rank, a unit at a time in host memory
};

// Of kNvme.
struct OffloadPlace {
  std::string directory;          // must exist; the file in it has no name
  OffloadCalls* calls = nullptr;  // for tests that let the file fail; null: the system's
};

}  // namespace trainyard::engine
