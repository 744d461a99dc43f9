#include "operator/placement/topology.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "operator/api/names.h"

namespace trainyard::placement {
namespace {

constexpr size_t kMostLevels = 16;
constexpr size_t kLongestKey = 317;  // prefix of 253, '/', name of 63

TopologyScheme Preset(const char* name, size_t anchor, std::vector<TopologyLevel> levels) {
  return {.name = name, .levels = std::move(levels), .anchor = anchor, .adapts = true};
}

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

tl::unexpected<Error> Bad(const std::string& what) { return Fail(ErrorCode::kInvalidArgument, what); }

bool IsLabelKey(std::string_view key) {
  if (key.empty() || key.size() > kLongestKey) return false;
  return std::all_of(key.begin(), key.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_' || c == '/';
  });
}

Result<Topology> ParseList(std::string_view text) {
  std::vector<TopologyLevel> levels;
  std::set<std::string> names, keys;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view item = Trim(text.substr(0, comma));
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos) {
      return Bad("'" + api::Printable(item) +
                 "' is no level: a level is NAME=LABEL, for example rack=example.com/rack");
    }
    TopologyLevel level{std::string(Trim(item.substr(0, equals))), std::string(Trim(item.substr(equals + 1)))};
    if (!api::IsDnsLabel(level.name)) {
      return Bad("'" + api::Printable(level.name) +
                 "' is no name of a level: at most 63 lower-case letters, digits and hyphens");
    }
    if (!IsLabelKey(level.key)) {
      return Bad("level " + level.name + ": '" + api::Printable(level.key) + "' is no key of a node label");
    }
    if (!names.insert(level.name).second) return Bad("level " + level.name + " is there twice");
    if (!keys.insert(level.key).second) return Bad("label " + level.key + " is there twice");
    levels.push_back(std::move(level));
    if (levels.size() > kMostLevels) return Bad("more than " + std::to_string(kMostLevels) + " levels");
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  return Topology::Of(std::move(levels));
}

}  // namespace

const std::vector<TopologyScheme>& Topology::Presets() {
  // What measures the fabric comes before what a provider says, and a zone, which says least, last. Sources:
  // Topograph's reference of node labels (1.0 and later; the spelling of July 2026; the one before), the documents of
  // each provider.
  static const auto* kPresets = new std::vector<TopologyScheme>{
      Preset("Topograph", 2,
             {{"core", "fabric.topograph.run/tier-2"},
              {"block", "fabric.topograph.run/tier-1"},
              {"rack", "fabric.topograph.run/tier-0"},
              {"domain", "accelerator.topograph.run/domain"}}),
      Preset("Topograph-Tiers", 2,
             {{"core", "network.topology.nvidia.com/tier-2"},
              {"block", "network.topology.nvidia.com/tier-1"},
              {"rack", "network.topology.nvidia.com/tier-0"},
              {"domain", "xclr.topology.nvidia.com/domain"}}),
      Preset("Topograph-Leaf", 2,
             {{"core", "network.topology.nvidia.com/core"},
              {"block", "network.topology.nvidia.com/spine"},
              {"rack", "network.topology.nvidia.com/leaf"},
              {"domain", "network.topology.nvidia.com/accelerator"}}),
      Preset("GKE", 1,
             {{"zone", "topology.kubernetes.io/zone"},
              {"block", "cloud.google.com/gce-topology-block"},
              {"rack", "cloud.google.com/gce-topology-subblock"},
              {"host", "cloud.google.com/gce-topology-host"}}),
      Preset("EKS", 1,
             {{"zone", "topology.kubernetes.io/zone"},
              {"core", "topology.k8s.aws/network-node-layer-1"},
              {"block", "topology.k8s.aws/network-node-layer-2"},
              {"rack", "topology.k8s.aws/network-node-layer-3"}}),
      Preset("OCI", 1,
             {{"zone", "topology.kubernetes.io/zone"},
              {"block", "oci.oraclecloud.com/host.network_block_id"},
              {"rack", "oci.oraclecloud.com/host.rack_id"}}),
      Preset("CoreWeave", 1, {{"zone", "topology.kubernetes.io/zone"}, {"rack", "ds.coreweave.com/nvlink.domain"}}),
      Preset("Kubernetes", 0, {{"zone", "topology.kubernetes.io/zone"}}),
  };
  return *kPresets;
}

Topology Topology::Auto() { return {.schemes = Presets()}; }

Topology Topology::Of(std::vector<TopologyLevel> levels) {
  Topology topology;
  if (!levels.empty()) topology.schemes.push_back({.name = "list", .levels = std::move(levels)});
  return topology;
}

Result<Topology> Topology::Parse(std::string_view text) {
  text = Trim(text);
  if (text.find('=') != std::string_view::npos) return ParseList(text);
  const std::string wanted = Lower(text);
  if (wanted == "auto") return Auto();
  if (wanted == "none") return Topology{};
  std::string names;
  for (const TopologyScheme& preset : Presets()) {
    if (Lower(preset.name) == wanted) return Topology{.schemes = {preset}};
    names += preset.name + ", ";
  }
  return Bad("'" + api::Printable(text) + "' is no topology: write Auto, None, one of " + names +
             "or a list NAME=LABEL,NAME=LABEL from far to near");
}

LevelCensus::LevelCensus(const Topology& topology) {
  for (const TopologyScheme& scheme : topology.schemes) {
    schemes_.push_back({scheme, std::vector<int64_t>(scheme.levels.size(), 0)});
  }
}

void LevelCensus::Count(const Labels& labels, int64_t by) {
  const auto carries = [&labels](const TopologyLevel& level) {
    const auto label = labels.find(level.key);
    return label != labels.end() && !label->second.empty();
  };
  for (Counts& counts : schemes_) {
    const TopologyScheme& scheme = counts.scheme;
    if (!scheme.adapts || !carries(scheme.levels[scheme.anchor])) continue;
    for (size_t i = 0; i < scheme.levels.size(); ++i) {
      if (carries(scheme.levels[i])) counts.carriers[i] += by;
    }
  }
}

std::vector<TopologyLevel> LevelCensus::Levels() const {
  for (const auto& [scheme, carriers] : schemes_) {
    if (!scheme.adapts) return scheme.levels;
    const int64_t speakers = carriers[scheme.anchor];
    if (speakers == 0) continue;
    std::vector<TopologyLevel> levels;
    for (size_t i = 0; i < scheme.levels.size(); ++i) {
      // Far levels count by majority: one odd node neither makes a level for all nor takes it from them. Near ones are
      // there if any node has them.
      const bool there = i < scheme.anchor ? carriers[i] * 2 > speakers : carriers[i] > 0;
      if (!there && i > scheme.anchor) break;
      if (there) levels.push_back(scheme.levels[i]);
    }
    return levels;
  }
  return {};
}

std::vector<std::string> PathOf(const LevelCensus::Labels& labels, const std::vector<TopologyLevel>& levels) {
  std::vector<std::string> path;
  for (const TopologyLevel& level : levels) {
    const auto label = labels.find(level.key);
    if (label == labels.end() || label->second.empty()) break;
    path.push_back(label->second);
  }
  return path;
}

}  // namespace trainyard::placement
