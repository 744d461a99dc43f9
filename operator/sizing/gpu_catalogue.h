// The GPUs that Trainyard knows: memory, peak arithmetic, links, and every name they go by. The data is a YAML file,
// gpu_catalogue.yaml, which is compiled in and explains each field; a file of the user's changes or replaces it. Prices
// come from there only. Thread-safety: an immutable value, shared between threads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

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

// One network port of 100 Gb/s for a server of 8 GPUs, in GB/s per GPU.
inline constexpr double kSharedPortGbps = 12.5 / 8;
inline constexpr double kDefaultDriverReserve = 0.05;

struct GpuProduct {
  std::string name;                  // short name, as in spec.gpus.products
  std::vector<std::string> aliases;  // values of nvidia.com/gpu.product and of cloud labels, older spellings
  int64_t memory_mib = 0;            // what the driver reports for one GPU; a node's own label wins over it
  double bf16_tflops = 0;            // dense tensor peak, fp32 accumulate
  double hbm_gbps = 0;               // GB/s; 0: not known
  double nvlink_gbps = 0;            // GB/s, both directions together as vendors quote it; 0: none
  int64_t nvlink_generation = 0;     // 0: none
  std::string nvlink_form;           // for people: "NVSwitch", "bridged pair"
  int64_t pcie_generation = 4;
  double pcie_gbps = 32;              // GB/s per direction, x16
  int64_t gpus_per_node = 8;          // of the usual server
  double mfu = 0.40;                  // default model FLOP/s utilisation for planning
  double nic_gbps = kSharedPortGbps;  // GB/s per GPU and direction between nodes, assumed for the usual server
  Link link = Link::kPcie;
  std::optional<double> relative_speed;  // of training, to one H100-SXM, where measured; else bf16_tflops x mfu decide
  double driver_reserve = kDefaultDriverReserve;  // share of memory_mib kept back for the driver and the unknown
  std::optional<double> price_per_hour;           // of one GPU
  std::string currency;                           // of price_per_hour, as the file names it; may be empty

  int64_t MemoryBytes() const { return memory_mib * 1024 * 1024; }
  bool HasNvlinkInNode() const { return link == Link::kNvswitch || link == Link::kNvlinkRack || link == Link::kXgmi; }
  bool Simulated() const { return link == Link::kProcess; }
};

// Short name and label value of the nodes that `trainyard run` simulates: CPU processes, memory from the node's label.
// Every catalogue has this product, and no file can change it.
inline constexpr const char* kSimulatedProduct = "Simulated";
inline constexpr const char* kSimulatedLabelValue = "trainyard-simulated";

class Catalogue {
 public:
  // The compiled-in one.
  static const std::shared_ptr<const Catalogue>& Default();

  // {"currency": "USD", "replace": false, "products": [{"name": ..., ...}]}. A row whose name or alias is known changes
  // the fields it gives of that product (aliases are added to); any other row is a new product and needs memoryMiB and
  // bf16TFLOPS. With "replace": true nothing is known before. Error: kInvalidArgument, one line that names row, field
  // and value.
  static Result<Catalogue> FromJson(const nlohmann::json& document);
  // The same from YAML; errors begin with `source_name`.
  static Result<Catalogue> FromYaml(std::string_view text, std::string_view source_name);

  // Every product, in the order of the file; the simulated one is last.
  const std::vector<GpuProduct>& products() const { return products_; }

  // By short name or alias, ignoring case; nullptr when unknown. Shared and MIG label values (-SHARED, -MIG-...) are
  // unknown. The pointer lives as long as the catalogue.
  const GpuProduct* Find(std::string_view name) const;
  // The same with an error that lists the nearest names. Errors: kInvalidArgument.
  Result<const GpuProduct*> Require(std::string_view name) const;
  // Short names nearest to `name`, best first.
  std::vector<std::string> Nearest(std::string_view name, size_t limit) const;

  // Of the prices, as the file names it; empty when it names none.
  const std::string& currency() const { return currency_; }

 private:
  // Puts the products in order and under their names. Error: two products of one name.
  static Result<Catalogue> Make(std::vector<GpuProduct> products, std::string currency);

  std::vector<GpuProduct> products_;
  std::map<std::string, size_t, std::less<>> index_;  // lower-case names and aliases
  std::string currency_;
};

// `given`, or the compiled-in one where it is null.
inline const Catalogue& OrDefault(const std::shared_ptr<const Catalogue>& given) {
  return given != nullptr ? *given : *Catalogue::Default();
}

// What a link moves, in GB/s. Never divide a figure of one column by one of the other.
struct LinkRate {
  std::string name;  // "NVLink 4, NVSwitch", "PCIe 5 x16", "network"
  double both_directions = 0;
  double per_direction = 0;
};
// The links of one GPU of this product: to its peers (if it has more than PCIe), to the host, and to other nodes.
// Simulated GPUs have none.
std::vector<LinkRate> LinksOf(const GpuProduct& product);

// As in a file: "NVSwitch", "PCIeNoPeer".
std::string_view LinkName(Link link);

}  // namespace trainyard::sizing
