#include "operator/placement/why_not.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "operator/placement/candidates.h"
#include "operator/placement/constraints.h"
#include "operator/placement/room.h"
#include "operator/placement/selection.h"

namespace trainyard::placement {
namespace {

std::string Word(int64_t gpus) { return gpus == 1 ? "GPU" : "GPUs"; }

std::string Gpus(int64_t count) { return std::to_string(count) + " " + Word(count); }

std::string Nodes(int64_t count, const char* kind = "") {
  return std::to_string(count) + " " + kind + (count == 1 ? "node" : "nodes");
}

// "H100-SXM or B200 ", and nothing for any.
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

std::string Unfit(const Room& room) { return room.unfit.empty() ? "" : "; unfit: " + Reasons(room.unfit); }

// "; 3 nodes with enough GPUs lack cpu"
std::string Lacking(const Room& room) {
  std::string text;
  for (const auto& [resource, count] : room.lacking) {
    text += "; " + Nodes(count) + " with enough GPUs " + (count == 1 ? "lacks " : "lack ") + resource;
  }
  return text;
}

std::string Kept(const Room& room) {
  return room.kept == 0 ? "" : "; " + Gpus(room.kept) + " kept for jobs ahead in the queue";
}

// The domain with the most nodes that have room, then the most free GPUs; null without any.
const DomainRoom* Best(const std::vector<DomainRoom>& domains) {
  const auto best = std::max_element(domains.begin(), domains.end(), [](const DomainRoom& a, const DomainRoom& b) {
    return std::pair(a.with_room, a.free_gpus) < std::pair(b.with_room, b.free_gpus);
  });
  return best == domains.end() ? nullptr : &*best;
}

// The domain with the most free GPUs.
const DomainRoom* Freest(const std::vector<DomainRoom>& domains) {
  const auto best = std::max_element(domains.begin(), domains.end(), [](const DomainRoom& a, const DomainRoom& b) {
    return a.free_gpus < b.free_gpus;
  });
  return best == domains.end() ? nullptr : &*best;
}

// One change of the request under which it would fit now, or nothing.
std::string WouldHelp(const Yard& yard, const GangRequest& request, const Room& room) {
  const auto fits = [&](auto change) {
    GangRequest other = request;
    change(other);
    return FindPlace(yard, other);
  };
  if (!request.level.empty() && request.level_required) {
    const std::optional<size_t> level = yard.LevelIndex(request.level);
    for (size_t parent = level.value_or(0); parent-- > 0;) {
      const std::string& name = yard.levels()[parent].name;
      if (auto placed = fits([&](GangRequest& r) { r.level = name; })) return "; fits in one " + name;
    }
    if (auto placed = fits([](GangRequest& r) { r.level_required = false; })) {
      return "; fits on " + placed->domain + " if the level is Preferred";
    }
  }
  if (request.nvlink == api::NvLink::kRequired) {
    if (auto placed = fits([](GangRequest& r) { r.nvlink = api::NvLink::kPreferred; })) {
      return "; fits on " + placed->domain + " with nvlink: Preferred";
    }
  }
  // Smaller pods do not make more GPUs.
  for (int64_t fewer = request.per_node / 2; fewer > 0 && room.free_gpus >= request.gpus; fewer /= 2) {
    if (request.gpus % fewer != 0 || request.per_node % fewer != 0) continue;
    const auto ask = [fewer](GangRequest& r) {
      // Each pod of a smaller size asks for its share.
      for (auto& [resource, amount] : r.pod_resources) amount = amount * fewer / r.per_node;
      r.per_node = fewer;
    };
    if (fits(ask)) return "; fits with " + std::to_string(fewer) + " per node";
  }
  if (!request.constraints.node_selector.empty() || !request.constraints.affinity.empty()) {
    const auto open = [](GangRequest& r) { r.constraints.node_selector.clear(), r.constraints.affinity.clear(); };
    if (fits(open))
      return "; fits without the podTemplate's " +
             std::string(request.constraints.affinity.empty() ? "node selector" : "node affinity");
  }
  return "";
}

// "node a", "2 H100-SXM nodes": what the template allows of the product, by name where that is short.
std::string Selected(const Room& room, const std::string& product) {
  if (room.selected > static_cast<int64_t>(room.open.size())) return Nodes(room.selected, product.c_str());
  std::string names;
  for (const std::string& name : room.open) names += (names.empty() ? "" : ", ") + name;
  return product + (room.selected == 1 ? "node " : "nodes ") + names;
}

// What no waiting will change: nothing matches the job's own template, or what does is too small. Empty: not so. The
// template is blamed only where it bars nodes that would be open otherwise.
std::string Contradiction(const Room& room, const GangRequest& request, const std::string& wanted,
                          const std::string& product) {
  if (room.barred == 0) return "";
  if (room.selected == 0) {
    // One reason for all is named as it is: "no node matches node selector a=b".
    if (room.unfit.size() == 1 && room.unfit.begin()->first.starts_with("outside ")) {
      return "needs " + wanted + "; no " + product + "node matches " + room.unfit.begin()->first.substr(8);
    }
    return "needs " + wanted + "; podTemplate: no node is left for it" + Unfit(room);
  }
  const int64_t count = request.gpus / request.per_node;
  const bool all_open = room.selected == room.eligible;  // else some may come back, and be larger
  const bool too_small = all_open && room.largest_usable < request.per_node;
  if (!too_small && room.selected >= count) return "";
  std::string text = std::string("podTemplate: ") +
                     (request.constraints.affinity.empty() ? "node selector" : "affinity") + " allows only " +
                     Selected(room, product);
  if (too_small) {
    text += std::string(", which ") + (room.eligible == 1 ? "has " : "have at most ") +
            std::to_string(room.largest_usable) + " of the " + Gpus(request.per_node) + " that a pod needs";
  } else {
    text += "; the job needs " + Nodes(count);
  }
  if (room.others > 0) {
    text += "; " + Nodes(room.others, "more ") + " that it allows " + (room.others == 1 ? "has" : "have") +
            " another GPU product, or one that is not known";
  }
  return text + Unfit(room);
}

// "needs 4 nodes with 8 free H100-SXM GPUs each"
std::string Asked(const GangRequest& request, const std::string& product) {
  const int64_t count = request.gpus / request.per_node;
  std::string text = "needs ";
  if (count > 1) text += Nodes(count) + " with ";
  text += std::to_string(request.per_node) + " free " + product + Word(request.per_node);
  return text + (count > 1 ? " each" : " on one node");
}

}  // namespace

std::string WhyNoneTakes(const Yard& yard, const std::vector<std::string>& products,
                         const std::vector<api::Toleration>& tolerations) {
  const std::vector<std::string> names = ShortNames(products, yard.catalogue());
  api::NodeConstraints constraints;
  constraints.tolerations = tolerations;
  std::map<std::string, int64_t> reasons;
  int64_t nodes = 0;
  for (const YardNode& node : yard.nodes()) {
    if (!node.known || !ProductAllowed(node, names)) continue;
    const std::string why = node.Eligible() ? WhyBarred(node, constraints) : node.ineligible;
    if (why.empty()) return "";
    ++nodes;
    ++reasons[why];
  }
  if (nodes == 0) return "";
  return "no node takes this gang now; of " + Nodes(nodes, Products(names).c_str()) +
         (names.empty() ? " with GPUs" : "") + ": " + Reasons(reasons);
}

std::string WhyNot(const Yard& yard, const GangRequest& request) {
  const Room room = RoomFor(yard, request);
  const std::string product = Products(ShortNames(request.products, yard.catalogue()));
  const std::string wanted = std::to_string(request.gpus) + " " + product + Word(request.gpus);
  const bool in_one_level = !request.level.empty() && request.level_required;
  if (in_one_level && !yard.LevelIndex(request.level)) {
    std::string known;
    for (const std::string& name : yard.level_names()) known += (known.empty() ? "" : ", ") + name;
    return "needs " + wanted + " in one " + request.level +
           "; no node says where it is by such a level (known: " + (known.empty() ? "none" : known) + ")";
  }
  if (const std::string text = Contradiction(room, request, wanted, product); !text.empty()) return text;
  const int64_t count = request.gpus / request.per_node;
  if (request.nvlink == api::NvLink::kRequired && request.gpus > 1) {
    std::string text = "needs " + Gpus(request.gpus) + " of one NVLink domain; ";
    const DomainRoom* best = Freest(room.nvlink_domains);
    if (best == nullptr) return text + "no node has one" + Unfit(room) + WouldHelp(yard, request, room);
    text += "largest free domain has " + std::to_string(best->free_gpus) + " (" +
            DomainName(yard, best->domain, yard.index().depth() - 1) + ")";
    if (best->free_gpus >= request.gpus) {
      text += ", but not as " + Nodes(count) + " with " + std::to_string(request.per_node) + " each";
    }
    return text + Lacking(room) + Kept(room) + Unfit(room) + WouldHelp(yard, request, room);
  }
  if (room.eligible == 0) return "needs " + wanted + "; no node can give any" + Unfit(room);
  const std::string tail = Lacking(room) + Kept(room) + Unfit(room) + WouldHelp(yard, request, room);
  if (room.largest_usable < request.per_node) {
    return Asked(request, product) + "; the largest node has " + std::to_string(room.largest_usable) + tail;
  }
  if (count == 1) {
    return Asked(request, product) + "; largest free node has " + std::to_string(room.largest_free) + " (" +
           room.largest_node + ")" + tail;
  }
  if (in_one_level) {
    const DomainRoom* best = Best(room.level_domains);
    return Asked(request, product) + " in one " + request.level + "; " +
           (best == nullptr ? "no " + request.level + " is known"
                            : "the best one has " + std::to_string(best->with_room) + " (" +
                                  DomainName(yard, best->domain, *yard.LevelIndex(request.level)) + ")") +
           tail;
  }
  return Asked(request, product) + "; " + std::to_string(room.with_room) + " of " + Nodes(room.eligible, "fit ") +
         (room.with_room == 1 || room.eligible == 1 ? " has " : " have ") + (request.per_node == 1 ? "it" : "them") +
         " (" + Gpus(room.free_gpus) + " free in all)" + tail;
}

}  // namespace trainyard::placement
