// Device on the CPU. Allocation goes through an allocator that counts; work is synchronous, so events are always past.
// Thread-safety: as Device.
#pragma once

#include <memory>

#include "trainer/device/device.h"

namespace trainyard::device {

std::unique_ptr<Device> MakeCpuDevice();

}  // namespace trainyard::device
