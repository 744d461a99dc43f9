#include "operator/placement/candidates.h"

#include <algorithm>
#include <array>
#include <utility>

#include "operator/placement/constraints.h"
#include "operator/sizing/gpu_catalogue.h"

namespace trainyard::placement {
namespace {

// Whether what this job holds is free for the request: its own, or that of jobs taken as stopped.
bool CountsAsFree(const std::string& job, const GangRequest& request) {
  return job == request.job_uid || request.released.contains(job);
}

// Whether a node that does not name this resource has none of it. Every real node names the others.
bool Extended(const std::string& resource) {
  return std::find(kPackedResources.begin(), kPackedResources.end(), resource) == kPackedResources.end();
}

// More than any node has: what a node claims beyond it is not believed, so that sums stay numbers.
constexpr int64_t kMostGpus = 1 << 20;

}  // namespace

std::vector<std::string> ShortNames(const std::vector<std::string>& products, const sizing::Catalogue& catalogue) {
  std::vector<std::string> names;
  for (const std::string& wanted : products) {
    const sizing::GpuProduct* known = catalogue.Find(wanted);
    names.push_back(known != nullptr ? known->name : wanted);
  }
  return names;
}

bool ProductAllowed(const YardNode& node, const std::vector<std::string>& short_names) {
  if (short_names.empty()) return !node.product.empty();
  return std::find(short_names.begin(), short_names.end(), node.product) != short_names.end();
}

int64_t FreeFor(const YardNode& node, const GangRequest& request) {
  int64_t used = node.used;
  for (const auto& [job, gpus] : node.used_by_job) {
    if (CountsAsFree(job, request)) used -= gpus;
  }
  const auto held = request.held.find(node.name);
  if (held != request.held.end()) used += held->second;
  return std::clamp<int64_t>(node.usable - used, 0, node.usable);
}

std::string LackingResource(const YardNode& node, const GangRequest& request) {
  auto lacks = [&](const std::string& resource, int64_t amount) {
    auto free = node.free_resources.find(resource);
    if (free == node.free_resources.end()) return Extended(resource) && amount > 0;
    int64_t given_back = 0;
    for (const auto& [job, resources] : node.resources_by_job) {
      if (!CountsAsFree(job, request)) continue;
      if (auto held = resources.find(resource); held != resources.end()) given_back += held->second;
    }
    return amount > 0 && free->second + given_back < amount;
  };
  for (const auto& [resource, amount] : request.pod_resources) {
    if (lacks(resource, amount)) return resource;
  }
  return lacks("pods", 1) ? "pods" : "";
}

RequestView::RequestView(const Yard& yard, const GangRequest& request)
    : yard_(yard), request_(request), seen_otherwise_(yard.nodes().size(), false) {
  const auto mark = [&](const std::string& job) {
    for (const uint32_t node : yard.index().NodesOf(job)) seen_otherwise_[node] = true;
  };
  if (!request.job_uid.empty()) mark(request.job_uid);
  for (const std::string& job : request.released) mark(job);
  for (const auto& [name, gpus] : request.held) {
    if (const YardNode* node = yard.Find(name)) seen_otherwise_[static_cast<size_t>(node - yard.nodes().data())] = true;
  }
  for (const auto& [resource, amount] : request.pod_resources) {
    const auto at = std::find(kPackedResources.begin(), kPackedResources.end(), resource);
    if (at == kPackedResources.end()) {
      others_.emplace_back(resource, amount);
    } else {
      packed_[static_cast<size_t>(at - kPackedResources.begin())] = amount;
    }
  }
  const auto pods = std::find(kPackedResources.begin(), kPackedResources.end(), "pods") - kPackedResources.begin();
  packed_[static_cast<size_t>(pods)] = std::max<int64_t>(packed_[static_cast<size_t>(pods)], 1);
}

int64_t RequestView::Free(size_t node) const {
  if (seen_otherwise_[node]) return std::min(FreeFor(yard_.nodes()[node], request_), kMostGpus);
  return std::min(yard_.index().slots()[node].free, kMostGpus);
}

bool RequestView::Lacks(size_t node) const {
  if (seen_otherwise_[node]) return !LackingResource(yard_.nodes()[node], request_).empty();
  const YardIndex::Slot& slot = yard_.index().slots()[node];
  for (size_t i = 0; i < packed_.size(); ++i) {
    if (packed_[i] > 0 && slot.resources[i] < packed_[i]) return true;
  }
  const auto& free_resources = yard_.nodes()[node].free_resources;
  return std::any_of(others_.begin(), others_.end(), [&free_resources](const auto& need) {
    const auto free = free_resources.find(need.first);
    return need.second > 0 && (free == free_resources.end() || free->second < need.second);
  });
}

std::vector<ProductCandidates> FindCandidates(const Yard& yard, const GangRequest& request,
                                              std::optional<size_t> within) {
  const YardIndex& index = yard.index();
  const RequestView view(yard, request);
  const bool needs_links = request.nvlink == api::NvLink::kRequired && request.gpus > 1;
  const std::vector<uint32_t> bars = Judge(yard, request.constraints);
  // Per product number its place in what is returned.
  constexpr size_t kUnwanted = static_cast<size_t>(-1), kUnseen = static_cast<size_t>(-2);
  std::vector<ProductCandidates> out;
  std::vector<size_t> place(index.products(), request.products.empty() ? kUnseen : kUnwanted);
  for (const std::string& name : ShortNames(request.products, yard.catalogue())) {
    const uint32_t product = index.Product(name);
    if (product >= place.size() || place[product] != kUnwanted) continue;
    place[product] = out.size();
    out.emplace_back();
  }
  if (const uint32_t nameless = index.Product(""); nameless < place.size()) place[nameless] = kUnwanted;

  for (uint32_t i = 0; i < index.slots().size(); ++i) {
    const YardIndex::Slot& slot = index.slots()[i];
    if (!slot.eligible || bars[i] != 0 || place[slot.product] == kUnwanted) continue;
    if (needs_links && slot.linked < request.per_node) continue;
    const int64_t free = view.Free(i);
    if (free < request.per_node || view.Lacks(i)) continue;
    const YardNode& node = yard.nodes()[i];
    if (within && node.path.size() <= *within) continue;
    size_t& at = place[slot.product];
    if (at == kUnseen) {
      at = out.size();
      out.emplace_back();
    }
    const auto failures =
        request.excluded_nodes.empty() ? request.excluded_nodes.end() : request.excluded_nodes.find(node.name);
    out[at].nodes.push_back({i, free});
    out[at].penalties.push_back(failures == request.excluded_nodes.end() ? 0 : failures->second);
  }
  return out;
}

bool CanTake(const Yard& yard, const YardNode& node, const GangRequest& request) {
  if (request.per_node <= 0 || !node.Eligible()) return false;
  if (!ProductAllowed(node, ShortNames(request.products, yard.catalogue()))) return false;
  if (request.nvlink == api::NvLink::kRequired && request.gpus > 1 && !node.Linked(request.per_node)) return false;
  if (!request.level.empty() && request.level_required) {
    const std::optional<size_t> level = yard.LevelIndex(request.level);
    if (!level || node.path.size() <= *level) return false;
  }
  return FreeFor(node, request) >= request.per_node && LackingResource(node, request).empty() &&
         Allowed(node, request.constraints);
}

}  // namespace trainyard::placement
