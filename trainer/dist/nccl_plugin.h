// The way to NCCL: a plug-in (trainer/dist/nccl, a library of its own) that is loaded only for jobs on GPUs.
// Thread-safety: OpenNccl is collective, so one thread of each rank calls it.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "operator/base/error.h"
#include "trainer/dist/comm.h"

namespace trainyard::dist {

// Name of the entry: `const NcclPlugin* trainyard_nccl_plugin()`, with C linkage.
inline constexpr const char* kNcclPluginEntry = "trainyard_nccl_plugin";

struct NcclPlugin {
  // As OpenNccl; null with `error` where that cannot be.
  std::unique_ptr<Comm> (*connect)(Comm& host, int device, std::chrono::milliseconds timeout, std::string& error);
};

// The ranks of `host` as a group for tensors on GPUs, `device` being the index of this rank's. Collective over `host`,
// a Gloo group or one of one rank, which carries the communicator's id and whose monitor looks after the calls.
// What differs from other backends:
//   - Wait() makes later work of the calling thread's current stream wait, and not the thread; Barrier blocks.
//   - Reduce::kOrderedSum (and any sum of bfloat16 or half) is an all-to-all and a sum in rank order on the GPU;
//     Reduce::kSum is NCCL's own, whose order depends on its choice of algorithm, so its bits may differ between
//     topologies and versions. Both give all ranks the same bits.
//   - Send and Recv between two ranks match by order alone, whatever their tags, and run in the order of the calls.
//   - Calls that do not end are aborted at their deadline, so that the stream, and with it the thread, goes on; the
//     next call or Wait() then throws.
// Errors: kFailedPrecondition without the plug-in or a GPU, kDeadlineExceeded, kUnavailable.
Result<std::unique_ptr<Comm>> OpenNccl(Comm& host, int device, std::chrono::milliseconds timeout);

}  // namespace trainyard::dist
