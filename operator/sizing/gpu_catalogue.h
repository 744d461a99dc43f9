// The GPUs that Trainyard knows: memory, peak arithmetic, links, and every name they go by. Prices are not here: they
// are the user's. Sources of the figures: docs/sizing.md. Thread-safety: pure functions over constant data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "operator/base/error.h"

namespace trainyard::sizing {

// How the GPUs of one node reach each other.
enum class Link {
  kProcess,       // simulated: local processes
  kPcie,          // PCIe with peer-to-peer copies
  kPcieNoPeer,    // PCIe through host memory (GeForce 40 and 50)
  kNvlinkBridge,  // pairs (or fours) bridged; whether a bridge is there cannot be seen, so planned as PCIe
  kNvswitch,      // every GPU of the node at full speed
  kNvlinkRack,    // NVLink across the nodes of a rack (GB200, GB300): `nvidia.com/gpu.clique`
  kXgmi,          // AMD Infinity Fabric, full mesh of 8
};

struct GpuProduct {
  std::string name;                  // short name, as in spec.gpus.products
  std::vector<std::string> aliases;  // values of nvidia.com/gpu.product and of cloud labels, older spellings
  int64_t memory_mib = 0;            // what the driver reports for one GPU; a node's own label wins over it
  double bf16_tflops = 0;            // dense tensor peak, fp32 accumulate
  double hbm_gbps = 0;               // GB/s
  double nvlink_gbps = 0;            // GB/s, both directions together as vendors quote it; 0: none
  int nvlink_generation = 0;         // 0: none
  int pcie_generation = 0;
  double pcie_gbps = 0;       // GB/s per direction, x16
  int64_t gpus_per_node = 8;  // of the usual server
  double mfu = 0.40;          // default model FLOP/s utilisation for planning
  double nic_gbps = 12.5;     // GB/s per GPU between nodes, assumed for the usual server
  Link link = Link::kPcie;

  int64_t MemoryBytes() const { return memory_mib * 1024 * 1024; }
  bool HasNvlinkInNode() const { return link == Link::kNvswitch || link == Link::kNvlinkRack || link == Link::kXgmi; }
  bool Simulated() const { return link == Link::kProcess; }
};

// Short name and label value of the nodes that `trainyard run` simulates: CPU processes, memory from the node's label.
inline constexpr const char* kSimulatedProduct = "Simulated";
inline constexpr const char* kSimulatedLabelValue = "trainyard-simulated";

// Every product, in the order of the documentation; the simulated one is last.
const std::vector<GpuProduct>& Catalogue();

// By short name or alias, ignoring case; nullptr when unknown. Shared and MIG label values (-SHARED, -MIG-...) are
// unknown.
const GpuProduct* FindProduct(std::string_view name);

// The same with an error that lists the nearest names. Errors: kInvalidArgument.
Result<const GpuProduct*> RequireProduct(std::string_view name);

// Short names nearest to `name`, best first.
std::vector<std::string> NearestProducts(std::string_view name, size_t limit);

}  // namespace trainyard::sizing
