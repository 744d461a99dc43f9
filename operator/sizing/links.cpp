#include "operator/sizing/links.h"

namespace trainyard::sizing {

double IntraNodeBandwidth(const GpuProduct& product) {
  const double one_direction = product.nvlink_gbps / 2 * 1e9;
  switch (product.link) {
    case Link::kProcess:
      return 0;
    case Link::kNvswitch:
    case Link::kNvlinkRack:
      return one_direction * (product.nvlink_generation == 3 ? 0.78 : product.nvlink_generation == 4 ? 0.80 : 0.76);
    case Link::kXgmi:
      return 313e9;  // measured bus bandwidth of 8 MI300X
    case Link::kPcieNoPeer:
      return product.pcie_gbps * 1e9 * 0.30;
    case Link::kPcie:
    case Link::kNvlinkBridge:  // whether a bridge is there cannot be seen
      return product.pcie_gbps * 1e9 * 0.60;
  }
  return 0;
}

double InterNodeBandwidth(const GpuProduct& product) {
  // Across the nodes of an NVLink rack the links are the same; a plan cannot see whether a gang stays in one rack, so
  // it counts the network.
  return product.nic_gbps * 1e9 * 0.75;
}

double IntraNodeLatency(const GpuProduct& product) { return product.HasNvlinkInNode() ? 3.4e-6 : 5.7e-6; }

double SustainedFlops(const GpuProduct& product) {
  // Of an H100-SXM as the compiled-in catalogue plans it: 989 TFLOP/s at 0.40.
  if (product.relative_speed) return *product.relative_speed * 989e12 * 0.40;
  return product.bf16_tflops * 1e12 * product.mfu;
}

}  // namespace trainyard::sizing
