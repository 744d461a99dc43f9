#include "operator/placement/fabric.h"

#include <algorithm>
#include <utility>

#include "operator/placement/yard.h"

namespace trainyard::placement {
namespace {

constexpr std::string_view kEfa = "vpc.amazonaws.com/efa";
constexpr int64_t kMostAdapters = 16;  // of one node; a larger count means shares of them

bool IsRdma(std::string_view resource) {
  return resource.starts_with("rdma/") || resource.find("mlnxnics") != std::string_view::npos ||
         (resource.find('/') != std::string_view::npos && resource.find("rdma") != std::string_view::npos);
}

// Resources that every node has, with what a pod of a whole node may ask of each.
template <typename Wanted>
std::map<std::string, int64_t> Shared(const std::vector<const YardNode*>& nodes, Wanted wanted) {
  std::map<std::string, int64_t> shared;
  for (const auto& [resource, amount] : nodes.front()->snapshot->allocatable) {
    if (!wanted(resource)) continue;
    int64_t least = amount, free = amount;
    for (const YardNode* node : nodes) {
      const auto has = node->snapshot->allocatable.find(resource);
      least = std::min(least, has == node->snapshot->allocatable.end() ? 0 : has->second);
      const auto left = node->free_resources.find(resource);
      free = std::min(free, left == node->free_resources.end() ? 0 : left->second);
    }
    if (least <= 0) continue;
    const int64_t ask = least > kMostAdapters && resource != kEfa ? 1 : least;
    shared[resource] = free >= ask ? ask : 0;
  }
  return shared;
}

std::string Plural(size_t count) { return std::to_string(count) + (count == 1 ? " node" : " nodes"); }

void Choose(const std::vector<const YardNode*>& nodes, Fabric& fabric) {
  const YardNode& first = *nodes.front();
  if (nodes.size() == 1) {
    const bool linked = first.Linked(first.usable);
    fabric.profile = linked ? "NVLink" : "PCIe";
    fabric.why =
        linked ? "one node, all of whose GPUs are linked by NVLink" : "one node without NVLink between all GPUs";
    return;
  }
  const bool one_clique = !first.clique.empty() && std::all_of(nodes.begin(), nodes.end(), [&](const YardNode* node) {
    return node->clique == first.clique;
  });
  const auto efa = Shared(nodes, [](std::string_view resource) { return resource == kEfa; });
  const auto rdma = Shared(nodes, IsRdma);
  if (one_clique) {
    fabric.profile = "MNNVL";
    fabric.why = Plural(nodes.size()) + " of NVLink clique " + first.clique;
  } else if (!efa.empty()) {
    fabric.profile = "EFA";
    fabric.why = Plural(nodes.size()) + " that all advertise " + std::string(kEfa);
  } else if (!rdma.empty()) {
    fabric.profile = "InfiniBand";
    fabric.why = Plural(nodes.size()) + " that all advertise " + rdma.begin()->first;
  } else {
    fabric.profile = "Ethernet";
    fabric.why = Plural(nodes.size()) + " that have no network resource in common";
  }
  for (const auto& resources : {efa, rdma}) {
    for (const auto& [resource, amount] : resources) {
      if (amount > 0) fabric.resources[resource] = amount;
    }
  }
}

}  // namespace

Fabric FabricOf(const Yard& yard, const std::vector<std::string>& names) {
  Fabric fabric;
  std::vector<const YardNode*> nodes;
  for (const std::string& name : names) {
    if (const YardNode* node = yard.Find(name)) nodes.push_back(node);
  }
  if (nodes.empty()) return fabric;
  const sizing::GpuProduct* product = yard.catalogue().Find(nodes.front()->product);
  if (product != nullptr && product->Simulated()) return fabric;
  Choose(nodes, fabric);
  // The profile's own variable wins over the common one of its name.
  for (const char* name : {fabric.profile.c_str(), "Common"}) {
    const FabricProfile* profile = yard.fabrics().Find(name);
    if (profile == nullptr) continue;
    for (const FabricVariable& variable : profile->variables) {
      fabric.environment.try_emplace(variable.name, variable.value);
    }
  }
  return fabric;
}

}  // namespace trainyard::placement
