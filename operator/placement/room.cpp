#include "operator/placement/room.h"

#include <algorithm>

#include "operator/placement/candidates.h"
#include "operator/placement/constraints.h"

namespace trainyard::placement {
namespace {

// "node selector a=b" bars what is outside of it, a taint what is on it.
std::string Outside(const std::string& barred) { return barred.starts_with("node ") ? "outside " + barred : barred; }

// Counts barred nodes by reason. Words cost more than everything else that is asked of a node, so they are made once
// where all that a reason can say is in the request.
class BarredCount {
 public:
  BarredCount(const GangRequest& request, std::map<std::string, int64_t>& unfit)
      : constraints_(request.constraints), unfit_(unfit) {
    selector_.node_selector = constraints_.node_selector;
    const auto& affinity = constraints_.affinity;
    same_words_ = constraints_.node_selector.size() <= 1 &&
                  (affinity.size() != 1 || affinity[0].expressions.size() + affinity[0].fields.size() <= 1);
  }

  // `node` is not allowed.
  void Add(const YardNode& node) {
    if (!same_words_ || !node.taints.empty()) {
      ++unfit_[Outside(WhyBarred(node, constraints_))];
      return;
    }
    const bool selector = !constraints_.node_selector.empty() && !Allowed(node, selector_);
    int64_t*& count = selector ? by_selector_ : by_affinity_;
    if (count == nullptr) count = &unfit_[Outside(WhyBarred(node, constraints_))];
    ++*count;
  }

 private:
  const api::NodeConstraints& constraints_;
  api::NodeConstraints selector_;  // alone
  std::map<std::string, int64_t>& unfit_;
  bool same_words_ = false;
  int64_t* by_selector_ = nullptr;
  int64_t* by_affinity_ = nullptr;
};

void AddTo(DomainRoom& domain, const Yard& yard, size_t node, size_t level, int64_t free, bool has_room) {
  if (domain.name.empty()) domain.name = DomainName(yard, node, level);
  domain.free_gpus += free;
  domain.with_room += has_room ? 1 : 0;
}

}  // namespace

Room RoomFor(const Yard& yard, const GangRequest& request) {
  const std::vector<std::string> products = ShortNames(request.products, yard.catalogue());
  const size_t clique = yard.index().depth() - 1;
  // That of cliques when no level is named, or one that no node has.
  const size_t level =
      std::min(clique, request.level.empty() ? clique : yard.LevelIndex(request.level).value_or(clique));
  const bool needs_links = request.nvlink == api::NvLink::kRequired && request.gpus > 1;
  const RequestView view(yard, request);
  DomainRoom* nvlink_domain = nullptr;
  DomainRoom* level_domain = nullptr;
  uint32_t nvlink_id = 0, level_id = 0;  // of these two, for nodes of one domain mostly stand side by side
  Room room;
  BarredCount barred(request, room.unfit);
  // By product number: whether it is asked for; -1: not looked at yet.
  std::vector<int> asked(yard.index().products(), -1);
  for (size_t i = 0; i < yard.nodes().size(); ++i) {
    const YardNode& node = yard.nodes()[i];
    int& is_asked = asked[yard.index().slots()[i].product];
    if (is_asked < 0) is_asked = ProductAllowed(node, products) ? 1 : 0;
    if (is_asked == 0) continue;
    if (!node.Eligible()) {
      ++room.unfit[node.ineligible];
      continue;
    }
    if (!Allowed(node, request.constraints)) {
      barred.Add(node);
      ++room.barred;
      continue;
    }
    if (!request.level.empty() && request.level_required && node.path.size() <= level) {
      ++room.unfit["without a known " + request.level];
      continue;
    }
    if (needs_links && !node.Linked(request.per_node)) {
      ++room.unfit["without NVLink between " + std::to_string(request.per_node) + " GPUs"];
      continue;
    }
    ++room.eligible;
    if (room.open.size() < 4) room.open.push_back(node.name);
    const int64_t free = view.Free(i);
    room.free_gpus += free;
    room.largest_usable = std::max(room.largest_usable, node.usable);
    if (room.largest_node.empty() || free > room.largest_free) {
      room.largest_free = free;
      room.largest_node = node.name;
    }
    bool has_room = free >= request.per_node;
    if (has_room && view.Lacks(i)) {
      has_room = false;
      ++room.lacking[LackingResource(node, request)];
    }
    room.with_room += has_room ? 1 : 0;
    if (needs_links) {
      const uint32_t id = yard.index().Domains(clique)[i];
      if (nvlink_domain == nullptr || id != nvlink_id) nvlink_domain = &room.nvlink_domains[nvlink_id = id];
      AddTo(*nvlink_domain, yard, i, clique, free, has_room);
    }
    if (level < clique) {
      const uint32_t id = yard.index().Domains(level)[i];
      if (level_domain == nullptr || id != level_id) level_domain = &room.level_domains[level_id = id];
      AddTo(*level_domain, yard, i, level, free, has_room);
    }
  }
  for (const auto& [name, gpus] : request.held) {
    const YardNode* node = yard.Find(name);
    if (node == nullptr || !node->Eligible() || !ProductAllowed(*node, products)) continue;
    if (Allowed(*node, request.constraints)) room.kept += std::min(gpus, node->free);
  }
  return room;
}

}  // namespace trainyard::placement
