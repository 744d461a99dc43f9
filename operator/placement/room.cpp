#include "operator/placement/room.h"

#include <algorithm>
#include <utility>

#include "operator/placement/candidates.h"
#include "operator/placement/constraints.h"

namespace trainyard::placement {
namespace {

// "node selector a=b" bars what is outside of it, a taint what is on it.
std::string Outside(const std::string& barred) { return barred.starts_with("node ") ? "outside " + barred : barred; }

// What the template itself selects: taints are the nodes' own doing.
std::vector<uint32_t> JudgeSelection(const Yard& yard, const api::NodeConstraints& constraints) {
  if (constraints.node_selector.empty() && constraints.affinity.empty()) return {};
  api::NodeConstraints selection = constraints;
  selection.tolerations = {{.key = "", .op = "Exists", .value = "", .effect = "", .seconds = {}}};
  return Judge(yard, selection);
}

class Counter {
 public:
  Counter(const Yard& yard, const GangRequest& request)
      : yard_(yard),
        request_(request),
        products_(ShortNames(request.products, yard.catalogue())),
        view_(yard, request),
        bars_(Judge(yard, request.constraints)),
        selection_(JudgeSelection(yard, request.constraints)),
        clique_(yard.index().depth() - 1),
        level_(std::min(clique_, request.level.empty() ? clique_ : yard.LevelIndex(request.level).value_or(clique_))),
        needs_links_(request.nvlink == api::NvLink::kRequired && request.gpus > 1) {
    if (needs_links_) room_.nvlink_domains.resize(yard.nodes().size());
    if (level_ < clique_) room_.level_domains.resize(yard.nodes().size());
  }

  Room Count() {
    // By product number: whether it is asked for; -1: not looked at yet.
    std::vector<int> asked(yard_.index().products(), -1);
    for (uint32_t i = 0; i < yard_.nodes().size(); ++i) {
      int& is_asked = asked[yard_.index().slots()[i].product];
      if (is_asked < 0) is_asked = ProductAllowed(yard_.nodes()[i], products_) ? 1 : 0;
      if (!selection_.empty() && selection_[i] == 0) CountSelected(i, is_asked == 1);
      if (is_asked == 1 && Open(i)) Use(i);
    }
    // Words cost more than all else that is asked of a node: they are made once for each bar.
    for (const auto& [nodes, example] : by_bar_) {
      if (nodes == 0) continue;
      const std::string why = Outside(WhyBarred(yard_.nodes()[example], request_.constraints));
      room_.unfit[why] += nodes;
      if (why.starts_with("outside ")) room_.barred += nodes;
    }
    for (const auto& [name, gpus] : request_.held) {
      const YardNode* node = yard_.Find(name);
      if (node == nullptr || !node->Eligible() || !ProductAllowed(*node, products_)) continue;
      if (Allowed(*node, request_.constraints)) room_.kept += std::min(gpus, node->free);
    }
    for (auto* domains : {&room_.nvlink_domains, &room_.level_domains}) {
      std::erase_if(*domains, [](const DomainRoom& domain) { return domain.nodes == 0; });
    }
    return std::move(room_);
  }

 private:
  void CountSelected(uint32_t i, bool is_asked) {
    if (is_asked) {
      ++room_.selected;
    } else if (yard_.nodes()[i].usable > 0) {
      ++room_.others;
    }
  }

  // Whether the job may use the node, if it is free; else why not is counted.
  bool Open(uint32_t i) {
    const YardIndex::Slot& slot = yard_.index().slots()[i];
    if (!slot.eligible) {
      ++room_.unfit[yard_.nodes()[i].ineligible];
      return false;
    }
    if (bars_[i] != 0) {
      if (bars_[i] >= by_bar_.size()) by_bar_.resize(bars_[i] + 1);
      auto& [nodes, example] = by_bar_[bars_[i]];
      if (nodes++ == 0) example = i;
      return false;
    }
    if (!request_.level.empty() && request_.level_required && yard_.nodes()[i].path.size() <= level_) {
      ++room_.unfit["without a known " + request_.level];
      return false;
    }
    if (needs_links_ && slot.linked < request_.per_node) {
      ++room_.unfit["without NVLink between " + std::to_string(request_.per_node) + " GPUs"];
      return false;
    }
    return true;
  }

  void Use(uint32_t i) {
    ++room_.eligible;
    if (room_.open.size() < 4) room_.open.push_back(yard_.nodes()[i].name);
    const int64_t free = view_.Free(i);
    room_.free_gpus += free;
    room_.largest_usable = std::max(room_.largest_usable, yard_.index().slots()[i].usable);
    if (room_.largest_node.empty() || free > room_.largest_free) {
      room_.largest_free = free;
      room_.largest_node = yard_.nodes()[i].name;
    }
    bool has_room = free >= request_.per_node;
    if (has_room && view_.Lacks(i)) {
      has_room = false;
      ++room_.lacking[LackingResource(yard_.nodes()[i], request_)];
    }
    room_.with_room += has_room ? 1 : 0;
    if (needs_links_) Add(room_.nvlink_domains, yard_.index().Domains(clique_)[i], free, has_room);
    if (level_ < clique_) Add(room_.level_domains, yard_.index().Domains(level_)[i], free, has_room);
  }

  static void Add(std::vector<DomainRoom>& domains, uint32_t domain, int64_t free, bool has_room) {
    DomainRoom& room = domains[domain];
    room.domain = domain;
    ++room.nodes;
    room.free_gpus += free;
    room.with_room += has_room ? 1 : 0;
  }

  const Yard& yard_;
  const GangRequest& request_;
  const std::vector<std::string> products_;
  const RequestView view_;
  const std::vector<uint32_t> bars_;
  const std::vector<uint32_t> selection_;  // the same of the template's selector and affinity alone; empty: it has none
  const size_t clique_;
  const size_t level_;  // that of cliques when no level is named, or one that no node has
  const bool needs_links_;
  std::vector<std::pair<int64_t, uint32_t>> by_bar_;  // how many nodes, and the first of them
  Room room_;
};

}  // namespace

Room RoomFor(const Yard& yard, const GangRequest& request) { return Counter(yard, request).Count(); }

}  // namespace trainyard::placement
