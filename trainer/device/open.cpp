#include <string>

#include "trainer/device/cpu_device.h"
#include "trainer/device/device.h"

namespace trainyard::device {

Result<std::unique_ptr<Device>> Open(std::string_view name) {
  if (name == "CPU") {
    return MakeCpuDevice();
  }
  if (name == "CUDA") {
    return Fail(ErrorCode::kFailedPrecondition,
                "device CUDA: this build of the trainer runs on the CPU only; set training.device to CPU");
  }
  return Fail(ErrorCode::kInvalidArgument, "device \"" + std::string(name) + "\" is unknown; use CPU or CUDA");
}

}  // namespace trainyard::device
