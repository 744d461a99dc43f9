// Nodes under a running gang that take no new one any more: cordoned, tainted, in a bad condition, or with fewer GPUs
// than the gang holds there. The gang goes on, since a stop would cost more than the trouble may; people are told once,
// and the next attempt goes elsewhere, since placement sees the same.
#include <algorithm>

#include "operator/lifecycle/steps.h"
#include "operator/placement/fitness.h"

namespace trainyard::lifecycle {
namespace {

constexpr size_t kMostLines = 8;

bool Runs(const Context& c) {
  if (!c.Live() || c.Stopping() || c.settling || !c.s.started || c.out.refresh_pods || !c.AllExist()) return false;
  return std::all_of(c.ranks.begin(), c.ranks.end(),
                     [](const auto* pod) { return pod->phase == api::PodPhase::kRunning || pod->exit_code == 0; });
}

}  // namespace

void WatchNodes(Context& c) {
  const std::vector<std::string> told = std::move(c.s.advice);
  c.s.advice.clear();
  if (!Runs(c)) return;
  std::vector<std::string> troubles;
  for (const api::PlacedNode& placed : c.s.placement->nodes) {
    const api::NodeSnapshot* node = c.FindNode(placed.node);
    if (node == nullptr) continue;  // lost: that is a failure
    std::string why = placement::WhyUnfit(*node, c.job.spec.pod_template.nodes, placed.gpus, c.opt.yard);
    if (!why.empty()) troubles.push_back("node " + placed.node + ": " + why);
  }
  if (troubles.empty()) return;
  for (size_t i = 0; i < troubles.size() && i < kMostLines; ++i) {
    c.s.advice.push_back(troubles[i] + "; the job goes on there, and its next attempt goes elsewhere");
    const bool new_line = std::find(told.begin(), told.end(), c.s.advice.back()) == told.end();
    if (new_line) c.Say("Warning", "NodeTrouble", c.s.advice.back());
  }
  c.note += (c.note.empty() ? "" : "; ") + troubles.front();
  if (troubles.size() > 1) c.note += " (and " + Plural(static_cast<int64_t>(troubles.size()) - 1, "more node") + ")";
}

}  // namespace trainyard::lifecycle
