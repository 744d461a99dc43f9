// What `nvidia-smi topo -m` prints: how the GPUs of one machine reach each other and its network adapters. Read as the
// tool prints it (tabs, underline escapes) and as people paste it (blanks, cells that have grown together).
// Pure. Thread-safety: pure functions and plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "operator/base/error.h"
#include "operator/placement/gpu_links.h"
#include "operator/placement/yard.h"

namespace trainyard::placement {

// Far to near, as the tool's legend has them.
enum class TopoCode {
  kSystem,      // SYS: across the sockets
  kNode,        // NODE: across host bridges of one socket
  kHostBridge,  // PHB: one host bridge
  kSwitches,    // PXB: several PCIe switches
  kSwitch,      // PIX: one PCIe switch
  kNvLink,      // NV#
  kSelf         // X
};
std::string_view TopoCodeName(TopoCode code);

struct TopoCell {
  TopoCode code = TopoCode::kSelf;
  int64_t nvlinks = 0;  // of kNvLink
  bool operator==(const TopoCell&) const = default;
};

struct TopoNic {
  std::string name;            // "NIC0"
  std::string device;          // "mlx5_0" of the legend; the name when it says nothing
  std::vector<TopoCell> gpus;  // distance to each GPU
};

struct TopoMatrix {
  std::vector<std::vector<TopoCell>> gpus;  // square, symmetric, kSelf on the diagonal
  std::vector<TopoNic> nics;
};

// Error: kInvalidArgument, one line that names row and column, or what the tool said instead of a matrix.
Result<TopoMatrix> ParseTopoMatrix(std::string_view text);

// What a matrix means.
struct TopoFacts {
  Islands islands;  // GPUs that reach each other over NVLink, directly or over one another
  // One island in which every pair is linked: kNvSwitchNode (4 GPUs may be linked directly: the same for a job). Some
  // links: kNvLinkBridges. None: kPcie.
  LinkClass link = LinkClass::kPcie;
  std::vector<TopoCell> worst;  // per island: the farthest cell within it; kSelf for one GPU
  // By adapter: the GPUs nearest to it.
  struct Nearest {
    std::string nic;
    TopoCell cell;
    std::vector<int64_t> gpus;
  };
  std::vector<Nearest> nics;
  std::vector<std::string> faults;  // "GPU3 has 16 NVLinks to each GPU of its island, the others have 18"
};
TopoFacts Study(const TopoMatrix& matrix);

}  // namespace trainyard::placement
