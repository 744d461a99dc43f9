#include "operator/placement/census.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace trainyard::placement {
namespace {

// How many GPUs of the node one more pod could get that asks for `per_gpu` with each.
int64_t PodRoom(const YardNode& node, const api::Amounts& per_gpu) {
  const auto free = [&node](const std::string& resource) {
    const auto found = node.free_resources.find(resource);
    return found == node.free_resources.end() ? std::numeric_limits<int64_t>::max() : found->second;
  };
  if (!node.Eligible() || free("pods") < 1) return 0;
  int64_t room = node.free;
  for (const auto& [resource, amount] : per_gpu) {
    if (amount > 0) room = std::min(room, std::max<int64_t>(0, free(resource)) / amount);
  }
  return room;
}

// A set of nodes while it is counted: what Tally says, and how many GPUs a pod could get of its fit nodes one by one.
struct Counter {
  Tally tally;
  std::map<int64_t, int64_t> room;   // GPUs that one pod could get -> fit nodes
  std::map<int64_t, int64_t> sizes;  // usable GPUs -> fit nodes

  void Add(const YardNode& node, int64_t node_room) {
    ++tally.nodes;
    tally.usable += node.usable;
    if (!node.Eligible()) {
      ++tally.unfit_nodes;
      tally.unfit += node.usable;
      return;
    }
    tally.used += node.used;
    tally.free += node.free;
    if (node.free == node.usable) {
      ++tally.whole_nodes;
    } else {
      tally.stranded += node.free;
    }
    ++room[node_room];
    ++sizes[node.usable];
  }

  // The most GPUs that pods as large as one of the node sizes could get, one pod per node.
  const Tally& Finish() {
    for (const auto& [size, count] : sizes) {
      int64_t able = 0;
      for (auto it = room.lower_bound(size); it != room.end(); ++it) able += it->second;
      tally.largest_gang = std::max(tally.largest_gang, able * size);
    }
    return tally;
  }
};

// Nodes of one product.
struct Product {
  Counter all;
  int64_t largest_in_node = 0, largest_in_linked_node = 0;
  std::map<std::string, int64_t> why_unfit;
  std::vector<std::vector<std::pair<std::vector<std::string>, Counter>>> levels;  // the domain seen last is at the back
  std::map<std::string, Counter> cliques;

  void Add(const YardNode& node, int64_t room) {
    all.Add(node, room);
    if (!node.Eligible()) ++why_unfit[node.ineligible];
    largest_in_node = std::max(largest_in_node, room);
    const int64_t linked = node.Linked(room) ? room : std::min(room, node.island);
    if (node.link != LinkClass::kPcie) largest_in_linked_node = std::max(largest_in_linked_node, linked);
    for (size_t level = 0; level < node.path.size(); ++level) {
      auto& domains = levels[level];
      const auto end = node.path.begin() + static_cast<std::ptrdiff_t>(level) + 1;
      // Nodes come in the order of their paths, so a domain is never left and entered again.
      if (domains.empty() || !std::equal(node.path.begin(), end, domains.back().first.begin())) {
        domains.emplace_back(std::vector<std::string>(node.path.begin(), end), Counter());
      }
      domains.back().second.Add(node, room);
    }
    if (!node.clique.empty()) cliques[node.clique].Add(node, room);
  }
};

ProductCensus Finish(std::string name, Product& product) {
  ProductCensus out;
  out.product = std::move(name);
  out.tally = product.all.Finish();
  out.largest_in_node = product.largest_in_node;
  out.largest_in_nvlink = product.largest_in_linked_node;
  out.why_unfit = std::move(product.why_unfit);
  for (auto& level : product.levels) {
    auto& domains = out.domains.emplace_back();
    int64_t& largest = out.in_domain.emplace_back(0);
    for (auto& [path, counter] : level) {
      domains.push_back({std::move(path), counter.Finish()});
      largest = std::max(largest, domains.back().tally.largest_gang);
    }
  }
  for (auto& [clique, counter] : product.cliques) {
    out.cliques.push_back({{clique}, counter.Finish()});
    out.largest_in_nvlink = std::max(out.largest_in_nvlink, out.cliques.back().tally.largest_gang);
  }
  return out;
}

}  // namespace

Census CountYard(const Yard& yard, const api::Amounts& per_gpu) {
  Census census;
  std::map<std::string, Product> products;
  for (const YardNode& node : yard.nodes()) {
    if (node.product.empty()) {
      if (node.usable == 0) ++census.nodes_without_gpus;
      continue;
    }
    const auto [it, added] = products.try_emplace(node.product);
    if (added) it->second.levels.resize(yard.path_levels());
    it->second.Add(node, PodRoom(node, per_gpu));
  }
  for (auto& [name, product] : products) census.products.push_back(Finish(name, product));
  return census;
}

}  // namespace trainyard::placement
