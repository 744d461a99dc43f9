#include "operator/placement/why_not.h"

#include <algorithm>
#include <map>

#include "operator/placement/constraints.h"
#include "operator/sizing/gpu_catalogue.h"

namespace trainyard::placement {
namespace {

std::string Word(int64_t gpus) { return gpus == 1 ? "GPU" : "GPUs"; }

std::string Gpus(int64_t count) { return std::to_string(count) + " " + Word(count); }

std::string Nodes(int64_t count, const char* kind = "") {
  return std::to_string(count) + " " + kind + (count == 1 ? "node" : "nodes");
}

std::string Products(const std::vector<std::string>& products) {
  std::string text;
  for (const std::string& product : products) text += (text.empty() ? "" : " or ") + product;
  return text.empty() ? "" : text + " ";
}

// "3 cordoned, 1 not ready": the commonest first, at most four.
std::string Reasons(const std::map<std::string, int64_t>& counts) {
  std::vector<std::pair<int64_t, std::string>> sorted;
  for (const auto& [reason, count] : counts) sorted.emplace_back(-count, reason);
  std::sort(sorted.begin(), sorted.end());
  std::string text;
  for (size_t i = 0; i < sorted.size() && i < 4; ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(-sorted[i].first) + " " + sorted[i].second;
  }
  return sorted.size() > 4 ? text + ", ..." : text;
}

// Whether what this job holds is free for the request: its own, or that of jobs taken as stopped.
bool CountsAsFree(const std::string& job, const GangRequest& request) {
  return job == request.job_uid || request.released.contains(job);
}

// What the nodes of the right product have, in numbers.
struct Room {
  int64_t eligible = 0, with_room = 0, lacking = 0, free_gpus = 0, largest_free = 0;
  std::string largest_node, lacks;
  std::map<std::string, int64_t> unfit;                            // reason -> nodes
  std::map<std::string, std::pair<int64_t, std::string>> domains;  // NVLink domain -> free GPUs in whole pods, name
};

Room Count(const Yard& yard, const GangRequest& request, const std::vector<std::string>& products) {
  Room census;
  for (size_t i = 0; i < yard.nodes().size(); ++i) {
    const YardNode& node = yard.nodes()[i];
    if (!ProductAllowed(node, products)) continue;
    if (!node.Eligible()) {
      ++census.unfit[node.ineligible];
      continue;
    }
    if (const std::string barred = WhyBarred(node, request.constraints); !barred.empty()) {
      ++census.unfit[barred];
      continue;
    }
    ++census.eligible;
    int64_t free = FreeFor(node, request);
    census.free_gpus += free;
    if (census.largest_node.empty() || free > census.largest_free) {
      census.largest_free = free;
      census.largest_node = node.name;
    }
    if (node.link != LinkClass::kPcie) {
      size_t level = yard.path_levels();
      auto& domain = census.domains[DomainKey(yard, i, level)];
      domain.first += free;
      domain.second = DomainName(yard, i, level);
    }
    if (free < request.per_node) continue;
    std::string lacks = LackingResource(node, request);
    if (lacks.empty()) {
      ++census.with_room;
    } else {
      ++census.lacking;
      census.lacks = lacks;
    }
  }
  return census;
}

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
    if (free == node.free_resources.end()) return false;  // the node does not account for it
    int64_t given_back = 0;
    for (const auto& [job, resources] : node.resources_by_job) {
      if (!CountsAsFree(job, request)) continue;
      if (auto held = resources.find(resource); held != resources.end()) given_back += held->second;
    }
    return free->second + given_back < amount;
  };
  for (const auto& [resource, amount] : request.pod_resources) {
    if (lacks(resource, amount)) return resource;
  }
  return lacks("pods", 1) ? "pods" : "";
}

std::string WhyNot(const Yard& yard, const GangRequest& request) {
  std::vector<std::string> products = ShortNames(request.products, yard.catalogue());
  Room census = Count(yard, request, products);
  std::string unfit = census.unfit.empty() ? "" : "; unfit: " + Reasons(census.unfit);
  std::string product = Products(products);
  if (census.eligible == 0) {
    return "needs " + std::to_string(request.gpus) + " " + product + Word(request.gpus) + "; no node can give any" +
           unfit;
  }
  int64_t count = request.gpus / request.per_node;
  if (request.nvlink == api::NvLink::kRequired && request.gpus > 1) {
    std::string text = "needs " + Gpus(request.gpus) + " of one NVLink domain; ";
    auto best = std::max_element(census.domains.begin(), census.domains.end(),
                                 [](const auto& a, const auto& b) { return a.second.first < b.second.first; });
    if (best == census.domains.end()) return text + "no node has one" + unfit;
    text += "largest free domain has " + std::to_string(best->second.first) + " (" + best->second.second + ")";
    if (best->second.first >= request.gpus) {
      text += ", but not as " + Nodes(count) + " with " + std::to_string(request.per_node) + " each";
    }
    return text + unfit;
  }
  std::string lacking;
  if (census.lacking > 0) {
    lacking = "; " + Nodes(census.lacking) + " with enough GPUs " + (census.lacking == 1 ? "lacks " : "lack ");
    lacking += census.lacks;
  }
  if (count == 1) {
    return "needs " + std::to_string(request.per_node) + " free " + product + Word(request.per_node) +
           " on one node; largest free node has " + std::to_string(census.largest_free) + " (" + census.largest_node +
           ")" + lacking + unfit;
  }
  return "needs " + Nodes(count) + " with " + std::to_string(request.per_node) + " free " + product +
         Word(request.per_node) + " each; " + std::to_string(census.with_room) + " of " +
         Nodes(census.eligible, "fit ") + (census.with_room == 1 || census.eligible == 1 ? " has " : " have ") +
         (request.per_node == 1 ? "it" : "them") + " (" + Gpus(census.free_gpus) + " free in all)" + lacking + unfit;
}

}  // namespace trainyard::placement
