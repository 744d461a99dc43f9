#include <string>

#include "trainer/contract/plugin.h"
#include "trainer/device/cpu_device.h"
#include "trainer/device/cuda_plugin.h"
#include "trainer/device/device.h"

namespace trainyard::device {
namespace {

Result<std::unique_ptr<Device>> OpenCuda(int index) {
  std::string error;
  void* const entry = contract::PluginEntry(contract::kCudaPlugin, kCudaPluginEntry, error);
  std::unique_ptr<Device> device;
  if (entry != nullptr) device = reinterpret_cast<const CudaPlugin* (*)()>(entry)()->open(index, error);
  if (device == nullptr) {
    return Fail(ErrorCode::kFailedPrecondition,
                "device CUDA: " + error + "; run on a GPU, or set training.device to CPU");
  }
  return device;
}

}  // namespace

Result<std::unique_ptr<Device>> Open(std::string_view name, int index) {
  if (name == "CPU") {
    return MakeCpuDevice();
  }
  if (name == "CUDA") {
    return OpenCuda(index);
  }
  return Fail(ErrorCode::kInvalidArgument, "device \"" + std::string(name) + "\" is unknown; use CPU or CUDA");
}

}  // namespace trainyard::device
