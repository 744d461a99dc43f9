// What a job needs outside the GPU: host memory, disk, and the time that keeping state there costs. All results are per
// GPU unless they say otherwise, in bytes or seconds. Thread-safety: pure functions.
#pragma once

#include <cstdint>

#include "operator/sizing/memory_input.h"

namespace trainyard::sizing {

struct HostBytes {
  int64_t pinned = 0;  // page-locked staging: two blocks on their way, and the copy that a checkpoint is written from
  int64_t offloaded = 0;   // state that lives in host memory
  int64_t nvme = 0;        // state that lives on disk
  int64_t checkpoint = 0;  // one checkpoint, all ranks together
  int64_t disk = 0;        // to provision for keepLast: that many and the one being written, all ranks together
};
// Errors: none; keep_last below 0 counts as 0.
HostBytes EstimateHost(const MemoryInput& in, int64_t keep_last);

// On disk: master and both moments in fp32, 12 P.
int64_t CheckpointBytes(int64_t parameters);
// The same for what is trained with this optimizer and adapter: 4 bytes per trained parameter and its optimizer states.
int64_t CheckpointBytes(const MemoryInput& in);

// Bytes per second and GPU. The defaults are what a server of one generation ago gives each of eight GPUs.
struct OffloadRates {
  double pcie = 25e9;         // one direction; PCIe 4 x16 as measured, of 32 on paper
  double host_memory = 40e9;  // share of the memory bandwidth that the update on the CPU gets
  double nvme_read = 3e9;
  double nvme_write = 1.5e9;
};
// Seconds that one optimizer step takes longer, nothing of it hidden: ZeRO-Offload (Ren et al., 2021) and ZeRO-Infinity
// (Rajbhandari et al., 2021) hide a part.
struct OffloadSeconds {
  double transfer = 0;  // gradients down after every micro batch, new weights up
  double update = 0;    // the optimizer in host memory
  double disk = 0;      // master copy and moments read and written
  double Total() const { return transfer + update + disk; }
};
OffloadSeconds OffloadSlowdown(const MemoryInput& in, const OffloadRates& rates, int64_t accumulation);

}  // namespace trainyard::sizing
