#include "operator/sizing/gpu_catalogue.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <numeric>
#include <utility>

namespace trainyard::sizing {
namespace {

constexpr double kPcie4 = 32;  // GB/s per direction, x16, as commonly rounded
constexpr double kPcie5 = 64;
constexpr double kPcie6 = 128;

// Usual servers: one network port per GPU of 400 Gb/s (Hopper and later), 200 Gb/s (A100), or 100 Gb/s per node of 8.
constexpr double kNic400 = 50;
constexpr double kNic200 = 25;
constexpr double kNicShared = 12.5 / 8;

std::vector<GpuProduct> Build() {
  // clang-format off
  // name, aliases, MiB, bf16 TFLOP/s, HBM GB/s, NVLink GB/s, generation, PCIe generation, GB/s, GPUs per node, MFU, NIC, link
  return {
      {"RTX-3090", {"NVIDIA-GeForce-RTX-3090", "GeForce-RTX-3090", "nvidia-rtx-3090"},
       24576, 71, 936, 112.5, 3, 4, kPcie4, 8, 0.30, kNicShared, Link::kNvlinkBridge},
      {"RTX-4090", {"NVIDIA-GeForce-RTX-4090", "GeForce-RTX-4090", "nvidia-rtx-4090"},
       24564, 165.2, 1008, 0, 0, 4, kPcie4, 8, 0.30, kNicShared, Link::kPcieNoPeer},
      {"RTX-5090", {"NVIDIA-GeForce-RTX-5090", "GeForce-RTX-5090", "nvidia-rtx-5090"},
       32607, 209.5, 1792, 0, 0, 5, kPcie5, 8, 0.30, kNicShared, Link::kPcieNoPeer},
      {"L4", {"NVIDIA-L4", "nvidia-l4"}, 23034, 121, 300, 0, 0, 4, kPcie4, 8, 0.30, kNicShared, Link::kPcie},
      {"L40S", {"NVIDIA-L40S", "nvidia-l40s"}, 46068, 362, 864, 0, 0, 4, kPcie4, 8, 0.30, kNicShared, Link::kPcie},
      // The A10G of one cloud reaches about half of the arithmetic; its memory is the same.
      {"A10", {"NVIDIA-A10", "NVIDIA-A10G", "A10G", "nvidia-a10g"},
       23028, 125, 600, 0, 0, 4, kPcie4, 8, 0.30, kNicShared, Link::kPcie},
      {"A30", {"NVIDIA-A30"}, 24576, 165, 933, 200, 3, 4, kPcie4, 8, 0.50, kNicShared, Link::kNvlinkBridge},
      {"A100-40GB-SXM", {"NVIDIA-A100-SXM4-40GB", "A100-SXM4-40GB", "nvidia-tesla-a100", "A100-40GB"},
       40960, 312, 1555, 600, 3, 4, kPcie4, 8, 0.50, kNic200, Link::kNvswitch},
      {"A100-40GB-PCIe", {"NVIDIA-A100-PCIE-40GB", "A100-PCIE-40GB"},
       40960, 312, 1555, 600, 3, 4, kPcie4, 8, 0.50, kNicShared, Link::kNvlinkBridge},
      {"A100-80GB-SXM", {"NVIDIA-A100-SXM4-80GB", "A100-SXM4-80GB", "nvidia-a100-80gb", "A100-80GB", "A100-SXM", "A100"},
       81920, 312, 2039, 600, 3, 4, kPcie4, 8, 0.50, kNic200, Link::kNvswitch},
      {"A100-80GB-PCIe", {"NVIDIA-A100-80GB-PCIe", "A100-PCIe"},
       81920, 312, 1935, 600, 3, 4, kPcie4, 8, 0.50, kNicShared, Link::kNvlinkBridge},
      {"H100-SXM", {"NVIDIA-H100-80GB-HBM3", "H100-SXM5-80GB", "H100-80GB-HBM3", "nvidia-h100-80gb", "nvidia-h100-mega-80gb",
                    "H100-SXM5", "H100"},
       81559, 989, 3350, 900, 4, 5, kPcie5, 8, 0.40, kNic400, Link::kNvswitch},
      {"H100-PCIe", {"NVIDIA-H100-PCIe"}, 81559, 756, 2000, 600, 4, 5, kPcie5, 8, 0.40, kNicShared, Link::kNvlinkBridge},
      {"H100-NVL", {"NVIDIA-H100-NVL"}, 95830, 835, 3900, 600, 4, 5, kPcie5, 8, 0.40, kNicShared, Link::kNvlinkBridge},
      {"H200-SXM", {"NVIDIA-H200", "nvidia-h200-141gb", "H200-SXM5", "H200"},
       143771, 989, 4800, 900, 4, 5, kPcie5, 8, 0.40, kNic400, Link::kNvswitch},
      {"H200-NVL", {"NVIDIA-H200-NVL"}, 143771, 835, 4800, 900, 4, 5, kPcie5, 8, 0.40, kNicShared, Link::kNvlinkBridge},
      {"B200", {"NVIDIA-B200", "nvidia-b200", "B200-SXM"},
       183359, 2250, 8000, 1800, 5, 5, kPcie5, 8, 0.35, kNic400, Link::kNvswitch},
      {"GB200", {"NVIDIA-GB200", "nvidia-gb200"},
       189471, 2500, 8000, 1800, 5, 5, kPcie5, 4, 0.35, kNic400, Link::kNvlinkRack},
      {"B300", {"NVIDIA-B300-SXM6-AC", "nvidia-b300", "B300-SXM"},
       275040, 2250, 8000, 1800, 5, 6, kPcie6, 8, 0.35, kNic400, Link::kNvswitch},
      // No label value of this memory has been seen in public: 288 GB nominal, as the B300 reports of its own.
      {"GB300", {"NVIDIA-GB300", "NVIDIA-GB300-288GB-HBM3e", "nvidia-gb300"},
       275040, 2500, 8000, 1800, 5, 6, kPcie6, 4, 0.35, kNic400, Link::kNvlinkRack},
      {"MI300X", {"AMD_Instinct_MI300X_OAM", "AMD-Instinct-MI300X-OAM", "AMD-Instinct-MI300X"},
       196096, 1307, 5300, 896, 0, 5, kPcie5, 8, 0.30, kNic400, Link::kXgmi},
      {kSimulatedProduct, {kSimulatedLabelValue}, 2048, 0, 0, 0, 0, 0, 0, 8, 0.40, 0, Link::kProcess},
  };
  // clang-format on
}

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// Levenshtein distance.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replace});
    }
  }
  return row.back();
}

size_t CommonPrefix(std::string_view a, std::string_view b) {
  size_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
  return n;
}

}  // namespace

const std::vector<GpuProduct>& Catalogue() {
  static const std::vector<GpuProduct> kProducts = Build();
  return kProducts;
}

const GpuProduct* FindProduct(std::string_view name) {
  const std::string wanted = Lower(name);
  for (const GpuProduct& p : Catalogue()) {
    if (Lower(p.name) == wanted) return &p;
  }
  for (const GpuProduct& p : Catalogue()) {
    for (const std::string& alias : p.aliases) {
      if (Lower(alias) == wanted) return &p;
    }
  }
  return nullptr;
}

std::vector<std::string> NearestProducts(std::string_view name, size_t limit) {
  const std::string wanted = Lower(name.substr(0, 64));
  // Names that begin alike come first (H100 for "H100-SXM4"), then those that differ in the fewest letters.
  std::vector<std::pair<std::ptrdiff_t, std::string>> ranked;
  for (const GpuProduct& p : Catalogue()) {
    if (p.Simulated()) continue;
    const std::string own = Lower(p.name);
    ranked.emplace_back(
        static_cast<std::ptrdiff_t>(Distance(wanted, own)) - 2 * static_cast<std::ptrdiff_t>(CommonPrefix(wanted, own)),
        p.name);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> out;
  for (size_t i = 0; i < ranked.size() && i < limit; ++i) out.push_back(ranked[i].second);
  return out;
}

Result<const GpuProduct*> RequireProduct(std::string_view name) {
  if (const GpuProduct* product = FindProduct(name)) return product;
  std::string near;
  for (const std::string& candidate : NearestProducts(name, 3)) near += (near.empty() ? "" : ", ") + candidate;
  return Fail(ErrorCode::kInvalidArgument,
              "'" + std::string(name.substr(0, 64)) + "' is no known GPU product; the nearest names are " + near);
}

}  // namespace trainyard::sizing
