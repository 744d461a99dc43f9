// What the CUDA plug-in (trainer/device/cuda, a library of its own) gives the trainer.
// Thread-safety: plain data.
#pragma once

#include <memory>
#include <string>

#include "trainer/device/device.h"

namespace trainyard::device {

// Name of the entry: `const CudaPlugin* trainyard_cuda_plugin()`, with C linkage.
inline constexpr const char* kCudaPluginEntry = "trainyard_cuda_plugin";

struct CudaPlugin {
  // Opens GPU `index` for this process and makes it the current one; null with `error` where that cannot be.
  std::unique_ptr<Device> (*open)(int index, std::string& error);
};

}  // namespace trainyard::device
