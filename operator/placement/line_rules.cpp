#include "operator/placement/line_rules.h"

#include <algorithm>

#include "operator/placement/candidates.h"
#include "operator/placement/constraints.h"

namespace trainyard::placement {

LineEntry& Enter(Line& line, const WaitingGang& gang) {
  LineEntry& entry = line.entries.emplace_back();
  entry.uid = gang.uid;
  entry.name = gang.name;
  entry.priority = gang.priority;
  entry.gpus = gang.request.gpus;
  entry.per_node = gang.request.per_node;
  entry.products = gang.request.products;
  entry.since = gang.since;
  entry.estimate = gang.estimate;
  entry.elastic = gang.elastic;
  entry.failed_start = gang.failed_start;
  entry.position = static_cast<int64_t>(line.entries.size());
  line.index[gang.uid] = line.entries.size() - 1;
  return entry;
}

std::vector<size_t> InTheWay(const Line& line, const WaitingGang& gang) {
  std::vector<size_t> heads;
  for (const size_t head : line.heads) {
    if (!line.EndsBefore(gang.estimate, line.entries[head])) heads.push_back(head);
  }
  return heads;
}

bool HoldsNothing(const Yard& yard, const GangRequest& request) {
  return request.job_uid.empty() || yard.index().NodesOf(request.job_uid).empty();
}

bool Hopeless(const Yard& yard, const Line& line, const GangRequest& request) {
  if (request.products.empty() || !HoldsNothing(yard, request)) return false;
  int64_t free = 0;
  for (const std::string& product : request.products) {
    const auto found = line.free.find(product);
    if (found == line.free.end()) return false;  // not counted, or another spelling
    free += found->second;
  }
  return free < request.gpus;
}

bool Refused(const Yard& yard, const Line& line, const GangRequest& request, const std::vector<size_t>& heads) {
  if (!HoldsNothing(yard, request)) return false;
  GangRequest plain;  // as one asks that never ran
  const GangRequest* asked = &request;
  if (!request.job_uid.empty()) {
    plain = request;
    plain.job_uid.clear();
    asked = &plain;
  }
  return std::any_of(line.refused.begin(), line.refused.end(), [&](const Line::Refused& refused) {
    return refused.request.gpus == asked->gpus && refused.request == *asked &&
           std::includes(heads.begin(), heads.end(), refused.heads.begin(), refused.heads.end());
  });
}

std::optional<size_t> HeadOf(const Yard& yard, const Line& line, const GangRequest& request) {
  const std::vector<std::string> products = ShortNames(request.products, yard.catalogue());
  const auto could_use = [&](const std::string& name) {
    const YardNode* node = yard.Find(name);
    return node != nullptr && ProductAllowed(*node, products) && Allowed(*node, request.constraints);
  };
  for (const size_t head : line.heads) {
    const std::vector<std::string>& nodes = line.entries[head].placement->nodes;  // every head has one
    if (std::any_of(nodes.begin(), nodes.end(), could_use)) return head;
  }
  if (line.heads.size() >= kMaxHeads) return line.heads.front();
  return std::nullopt;
}

}  // namespace trainyard::placement
