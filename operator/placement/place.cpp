#include "operator/placement/place.h"

#include <algorithm>
#include <optional>
#include <set>

#include "operator/placement/constraints.h"
#include "operator/placement/selection.h"
#include "operator/placement/why_not.h"

namespace trainyard::placement {
namespace {

int64_t Penalty(const YardNode& node, const GangRequest& request) {
  auto it = request.excluded_nodes.find(node.name);
  return it == request.excluded_nodes.end() ? 0 : it->second;
}

// Nodes of one product that can take a pod now and have caused at most `max_penalty` failures.
std::vector<Candidate> Candidates(const Yard& yard, const GangRequest& request, const std::string& product,
                                  int64_t max_penalty) {
  std::vector<Candidate> out;
  bool linked = request.nvlink == api::NvLink::kRequired && request.gpus > 1;
  for (size_t i = 0; i < yard.nodes().size(); ++i) {
    const YardNode& node = yard.nodes()[i];
    if (!node.Eligible() || node.product != product || Penalty(node, request) > max_penalty) continue;
    if (!Allowed(node, request.constraints)) continue;
    if (linked && !node.Linked(request.per_node)) continue;
    int64_t free = FreeFor(node, request);
    if (free >= request.per_node && LackingResource(node, request).empty()) out.push_back({i, free});
  }
  return out;
}

std::optional<Selection> Try(const Yard& yard, const GangRequest& request, const std::string& product,
                             int64_t max_penalty) {
  auto count = static_cast<size_t>(request.gpus / request.per_node);
  std::vector<Candidate> candidates = Candidates(yard, request, product, max_penalty);
  if (request.nvlink == api::NvLink::kRequired && count > 1) {
    // One clique must hold all: keep the smallest that does.
    std::map<std::string, std::vector<Candidate>> cliques;
    for (const Candidate& candidate : candidates) {
      const std::string& clique = yard.nodes()[candidate.node].clique;
      if (!clique.empty()) cliques[clique].push_back(candidate);
    }
    candidates.clear();
    for (auto& [name, members] : cliques) {
      if (members.size() >= count && (candidates.empty() || members.size() < candidates.size())) candidates = members;
    }
  }
  if (candidates.size() < count) return std::nullopt;
  return Select(yard, std::move(candidates), count, request.nvlink != api::NvLink::kAny);
}

GangPlacement Finish(const Yard& yard, const GangRequest& request, const std::string& product,
                     const Selection& selection, int64_t penalty) {
  GangPlacement out;
  for (size_t node : selection.nodes) out.nodes.push_back(yard.nodes()[node].name);
  out.product = product;
  out.domain = selection.domain;
  out.why = std::to_string(out.nodes.size()) + " x " + std::to_string(request.per_node) + " " + product +
            (request.per_node == 1 ? " GPU" : " GPUs") + " on " + selection.domain;
  if (penalty > 0) out.why += "; nodes that failed before had to be used again";
  return out;
}

}  // namespace

Result<GangPlacement> Place(const Yard& yard, const GangRequest& request) {
  if (request.gpus <= 0 || request.per_node <= 0 || request.gpus % request.per_node != 0) {
    return Fail(ErrorCode::kInvalidArgument, "cannot place " + std::to_string(request.gpus) +
                                                 " GPUs as equal pods of " + std::to_string(request.per_node));
  }
  // Products in the order asked for; "any" means in the order of the yard.
  std::vector<std::string> products;
  auto add = [&products](const std::string& product) {
    if (std::find(products.begin(), products.end(), product) == products.end()) products.push_back(product);
  };
  std::vector<std::vector<std::string>> wishes;
  if (request.products.empty()) wishes.push_back({});
  for (const std::string& product : ShortNames(request.products, yard.catalogue())) wishes.push_back({product});
  std::set<int64_t> penalties = {0};
  for (const auto& wish : wishes) {
    for (const YardNode& node : yard.nodes()) {
      if (ProductAllowed(node, wish)) add(node.product);
    }
  }
  for (const YardNode& node : yard.nodes()) penalties.insert(Penalty(node, request));
  // Nodes that failed are left out as long as anything else fits, the worst ones longest.
  for (int64_t penalty : penalties) {
    for (const std::string& product : products) {
      if (auto selection = Try(yard, request, product, penalty)) {
        return Finish(yard, request, product, *selection, penalty);
      }
    }
  }
  return Fail(ErrorCode::kResourceExhausted, WhyNot(yard, request));
}

int64_t RingCrossings(const Yard& yard, const std::vector<std::string>& nodes, size_t level) {
  auto domain = [&](const std::string& name) {
    const YardNode* node = yard.Find(name);
    if (node == nullptr) return "?" + name;
    return DomainKey(yard, static_cast<size_t>(node - yard.nodes().data()), level);
  };
  int64_t crossings = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (domain(nodes[i]) != domain(nodes[(i + 1) % nodes.size()])) ++crossings;
  }
  return crossings;
}

}  // namespace trainyard::placement
