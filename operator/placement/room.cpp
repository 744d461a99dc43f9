#include "operator/placement/room.h"

#include <algorithm>

#include "operator/placement/candidates.h"
#include "operator/placement/constraints.h"

namespace trainyard::placement {
namespace {

// "node selector a=b" bars what is outside of it, a taint what is on it.
std::string Outside(const std::string& barred) { return barred.starts_with("node ") ? "outside " + barred : barred; }

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
  Room room;
  for (size_t i = 0; i < yard.nodes().size(); ++i) {
    const YardNode& node = yard.nodes()[i];
    if (!ProductAllowed(node, products)) continue;
    if (!node.Eligible()) {
      ++room.unfit[node.ineligible];
      continue;
    }
    if (const std::string barred = WhyBarred(node, request.constraints); !barred.empty()) {
      ++room.unfit[Outside(barred)];
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
    const int64_t free = FreeFor(node, request);
    room.free_gpus += free;
    room.largest_usable = std::max(room.largest_usable, node.usable);
    if (room.largest_node.empty() || free > room.largest_free) {
      room.largest_free = free;
      room.largest_node = node.name;
    }
    if (const auto held = request.held.find(node.name); held != request.held.end()) {
      room.kept += std::min(held->second, node.free);
    }
    bool has_room = free >= request.per_node;
    if (has_room) {
      const std::string lacks = LackingResource(node, request);
      has_room = lacks.empty();
      if (!has_room) ++room.lacking[lacks];
    }
    room.with_room += has_room ? 1 : 0;
    const auto at = [&](size_t l) { return yard.index().Domains(l)[i]; };
    if (needs_links) AddTo(room.nvlink_domains[at(clique)], yard, i, clique, free, has_room);
    if (level < clique) AddTo(room.level_domains[at(level)], yard, i, level, free, has_room);
  }
  return room;
}

}  // namespace trainyard::placement
