#include "operator/lifecycle/penalties.h"

#include <algorithm>
#include <limits>

namespace trainyard::lifecycle {
namespace {

int64_t Left(int64_t count, TimePoint set_at, TimePoint now, Milliseconds period) {
  const int64_t periods = (now - set_at) / std::max(period, Milliseconds(1));
  if (periods <= 0) return count;
  return periods >= std::numeric_limits<int64_t>::digits ? 0 : count >> periods;
}

}  // namespace

std::map<std::string, int64_t> ActivePenalties(const api::JobStatus& status, TimePoint now, Milliseconds period) {
  std::map<std::string, int64_t> active;
  for (const auto& [node, count] : status.excluded_nodes) {
    auto at = status.excluded_at.find(node);
    const int64_t left = at == status.excluded_at.end() ? count : Left(count, at->second, now, period);
    if (left > 0) active[node] = left;
  }
  return active;
}

void AddPenalty(api::JobStatus& status, const std::string& node, TimePoint now, Milliseconds period) {
  auto active = ActivePenalties(status, now, period);
  // Beyond it one failure more says nothing, and the number is what an unfriendly status may hold.
  constexpr int64_t kMost = 1'000'000;
  status.excluded_nodes[node] = std::min(active[node], kMost - 1) + 1;
  status.excluded_at[node] = now;
  ForgetOldPenalties(status, now, period);
}

void ForgetOldPenalties(api::JobStatus& status, TimePoint now, Milliseconds period) {
  auto active = ActivePenalties(status, now, period);
  std::erase_if(status.excluded_nodes, [&](const auto& entry) { return !active.contains(entry.first); });
  std::erase_if(status.excluded_at, [&](const auto& entry) { return !active.contains(entry.first); });
  for (const auto& [node, count] : status.excluded_nodes) status.excluded_at.try_emplace(node, now);
}

}  // namespace trainyard::lifecycle
