#include "operator/placement/line_holders.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "operator/placement/constraints.h"

namespace trainyard::placement {
namespace {

// Holders that an entry names.
constexpr size_t kNamedHolders = 3;

bool Wanted(const GangRequest& request, const YardNode& node) {
  const std::vector<std::string>& products = request.products;
  const bool product = products.empty() || std::count(products.begin(), products.end(), node.product) > 0;
  return product && node.Eligible() && Allowed(node, request.constraints);
}

}  // namespace

void NameHolder(Line& line, const RunningGang& gang) {
  line.holders[gang.uid] = {gang.name, gang.priority, gang.Gpus(), gang.stopping, gang.expected_end};
}

void CountForeign(const Yard& yard, const GangRequest& request, LineEntry& entry) {
  for (const YardNode& node : yard.nodes()) {
    if (node.used == 0 || !Wanted(request, node)) continue;
    entry.foreign_gpus += node.used;
    for (const auto& [job, gpus] : node.used_by_job) entry.foreign_gpus -= gpus;
  }
}

void NameHolders(const Yard& yard, const std::vector<const RunningGang*>& running, const GangRequest& request,
                 Line& line, LineEntry& entry) {
  CountForeign(yard, request, entry);
  std::vector<std::pair<int64_t, const RunningGang*>> sizes;
  for (const RunningGang* gang : running) {
    int64_t gpus = 0;
    for (const Booking& booking : gang->holds) {
      const YardNode* node = yard.Find(booking.node);
      if (node != nullptr && Wanted(request, *node)) gpus += booking.gpus;
    }
    if (gpus > 0) sizes.emplace_back(-gpus, gang);
  }
  const size_t named = std::min(kNamedHolders, sizes.size());
  std::partial_sort(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(named), sizes.end(),
                    [](const auto& a, const auto& b) {
                      return std::tuple(a.first, std::string_view(a.second->name)) <
                             std::tuple(b.first, std::string_view(b.second->name));
                    });
  for (size_t i = 0; i < named; ++i) {
    entry.holders.push_back(sizes[i].second->uid);
    NameHolder(line, *sizes[i].second);
  }
  entry.more_holders = sizes.size() - named;
}

}  // namespace trainyard::placement
