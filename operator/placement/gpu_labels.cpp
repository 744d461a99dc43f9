#include "operator/placement/gpu_labels.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "operator/api/names.h"
#include "operator/placement/gpu_links.h"

namespace trainyard::placement {
namespace {

constexpr const char* kLabelProduct = "nvidia.com/gpu.product";
constexpr const char* kLabelGkeProduct = "cloud.google.com/gke-accelerator";
constexpr const char* kLabelMemory = "nvidia.com/gpu.memory";
constexpr const char* kLabelCount = "nvidia.com/gpu.count";
constexpr const char* kLabelClique = "nvidia.com/gpu.clique";
constexpr const char* kLabelMigStrategy = "nvidia.com/mig.strategy";
constexpr int64_t kMostMemoryMib = int64_t{4} << 20;  // 4 TiB

void Odd(YardNode& out, const std::string& what) { out.oddity += (out.oddity.empty() ? "" : "; ") + what; }

std::string Shown(std::string_view value) { return "'" + api::Printable(value) + "'"; }

std::optional<int64_t> Whole(const std::string& text) {
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

const std::string* Find(const api::NodeSnapshot& node, const char* key) {
  const auto label = node.labels.find(key);
  return label == node.labels.end() ? nullptr : &label->second;
}

void ReadMemory(const api::NodeSnapshot& node, const sizing::GpuProduct* product, YardNode& out) {
  out.memory_mib = product != nullptr ? product->memory_mib : 0;
  const std::string* label = Find(node, kLabelMemory);
  if (label == nullptr) return;
  const auto mib = Whole(*label);
  // The driver, ECC and variants of a board change some percent, not the order of magnitude. Simulated GPUs have what
  // their user gives them.
  const bool checked = product != nullptr && !product->Simulated();
  const bool absurd = mib && (*mib <= 0 || *mib > kMostMemoryMib ||
                              (checked && (*mib < product->memory_mib / 2 || *mib > product->memory_mib * 2)));
  if (mib && !absurd) {
    out.memory_mib = *mib;
    return;
  }
  Odd(out, std::string(kLabelMemory) + " is " + Shown(*label) +
               (mib ? ", which no such GPU has" : ", which is no number of MiB"));
}

// A count above what is advertised is usual: unhealthy GPUs, MIG. It says how many GPUs are missing.
void CheckCount(const api::NodeSnapshot& node, YardNode& out) {
  const std::string* label = Find(node, kLabelCount);
  if (label == nullptr || out.usable == 0) return;
  const auto count = Whole(*label);
  if (!count) {
    Odd(out, std::string(kLabelCount) + " is " + Shown(*label) + ", which is no number");
  } else if (*count < out.usable || (*count > out.usable && !node.labels.contains(kLabelMigStrategy))) {
    Odd(out, std::string(kLabelCount) + " is " + std::to_string(*count) + ", but " + std::to_string(out.usable) +
                 (out.usable == 1 ? " is advertised" : " are advertised"));
  }
}

// "<cluster UUID>.<clique id>": the id alone repeats in every rack, and so does a UUID of zeros, which a fabric has
// that is not set up.
bool IsClique(std::string_view text) {
  const size_t dot = text.rfind('.');
  if (dot == std::string_view::npos || dot == 0 || dot + 1 == text.size()) return false;
  const std::string_view cluster = text.substr(0, dot), id = text.substr(dot + 1);
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return std::all_of(id.begin(), id.end(), digit) && cluster.find_first_not_of("0-.") != std::string_view::npos;
}

void ReadLinks(const api::NodeSnapshot& node, const sizing::GpuProduct* product, YardNode& out) {
  if (const std::string* clique = Find(node, kLabelClique)) {
    if (IsClique(*clique)) {
      out.clique = *clique;
    } else {
      Odd(out, std::string(kLabelClique) + " is " + Shown(*clique) + ", which is not UUID.NUMBER");
    }
  }
  // A rack product without a clique has not joined its multi-node fabric: only its own node counts. Simulated GPUs
  // share one memory, which is as near as it gets.
  const bool linked = product != nullptr && (product->HasNvlinkInNode() || product->Simulated());
  out.link = linked ? LinkClass::kNvSwitchNode : LinkClass::kPcie;
  if (!out.clique.empty()) {
    out.link = LinkClass::kNvLinkMultiNode;
    return;
  }
  const auto annotation = node.annotations.find(kGpuLinksAnnotation);
  if (annotation == node.annotations.end()) return;
  const auto islands = ParseIslands(annotation->second);
  if (!islands) return Odd(out, std::string("annotation ") + kGpuLinksAnnotation + ": " + islands.error().message);
  int64_t gpus = 0;
  for (const auto& island : *islands) gpus += static_cast<int64_t>(island.size());
  if (gpus < out.usable) {
    return Odd(out, std::string("annotation ") + kGpuLinksAnnotation + " knows " + std::to_string(gpus) + " of " +
                        std::to_string(out.usable) + " GPUs");
  }
  if (gpus == 1) return;
  // What was measured wins over what such boards usually have.
  out.link = islands->size() == 1 ? LinkClass::kNvSwitchNode : LinkClass::kPcie;
  if (islands->size() == 1) return;
  for (const auto& island : *islands) {
    const auto size = static_cast<int64_t>(island.size());
    if (size < 2) continue;
    out.link = LinkClass::kNvLinkBridges;
    out.island = out.island == 0 ? size : std::min(out.island, size);
  }
}

}  // namespace

const std::string& LabelOf(const api::NodeSnapshot& node, const char* key) {
  static const auto* const kNone = new std::string();
  const std::string* label = Find(node, key);
  return label != nullptr ? *label : *kNone;
}

const std::string& ProductLabel(const api::NodeSnapshot& node) {
  const std::string& label = LabelOf(node, kLabelProduct);
  return label.empty() ? LabelOf(node, kLabelGkeProduct) : label;
}

void ReadGpuLabels(const api::NodeSnapshot& node, const sizing::GpuProduct* product, YardNode& out) {
  ReadMemory(node, product, out);
  ReadLinks(node, product, out);
  if (out.usable == 0) return;  // nobody asks what it would be
  CheckCount(node, out);
  const std::string& label = ProductLabel(node);
  if (label.empty()) {
    Odd(out, std::string("no label ") + kLabelProduct + " says which GPUs these are");
  } else if (product == nullptr) {
    Odd(out, "GPU product " + Shown(label) + " is not in the catalogue");
  }
}

}  // namespace trainyard::placement
