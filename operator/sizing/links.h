// What the links of a product carry, as collectives achieve it. Thread-safety: pure functions.
#pragma once

#include "operator/sizing/gpu_catalogue.h"

namespace trainyard::sizing {

// Bytes/s per GPU and direction between the GPUs of one node: the figure of the specification times the share that ring
// collectives reach: NVLink 3 0.78, 4 0.80, 5 0.76 (measured on A100, H200 and B200 servers, ml-engineering), PCIe with
// peer-to-peer copies 0.60 (measured on PCIe 5 workstations), without 0.30 (nothing measured was found: a guess, on the
// safe side). 0: nothing to model.
double IntraNodeBandwidth(const GpuProduct& product);
// Between nodes: 0.75 of a GPU's share of the network (4 nodes of 8 B200 measured 0.73).
double InterNodeBandwidth(const GpuProduct& product);
// Seconds per message and hop: NVLink 3.4 us, PCIe 5.7 us (NCCL's own tuning table, ring with the Simple protocol).
double IntraNodeLatency(const GpuProduct& product);

// FLOP/s that one GPU is planned to sustain at kMfuTokens: its speed relative to an H100-SXM where the catalogue has
// one measured, else peak x MFU. 0: not modelled.
double SustainedFlops(const GpuProduct& product);

}  // namespace trainyard::sizing
