#include "operator/lifecycle/context.h"

#include <algorithm>
#include <utility>

#include "operator/api/defaults.h"
#include "operator/lifecycle/conditions.h"
#include "operator/lifecycle/failure_rate.h"
#include "operator/lifecycle/pod_builder.h"
#include "operator/lifecycle/standing.h"

namespace trainyard::lifecycle {
namespace {

// Unreachable, as opposed to a kubelet that says of itself that it is not ready: that one still runs and stops pods.
bool Unreachable(const api::NodeSnapshot& node) {
  if (node.ready) return false;
  auto ready = node.conditions.find("Ready");
  if (ready == node.conditions.end() || ready->second != "False") return true;
  return std::any_of(node.taints.begin(), node.taints.end(),
                     [](const api::Taint& taint) { return taint.key == "node.kubernetes.io/unreachable"; });
}

}  // namespace

Context::Context(const Input& input, const Options& options) : in(input), opt(options), job(input.job), s(job.status) {
  api::ApplyDefaults(job);
  for (const api::PodSnapshot& pod : in.pods) {
    if (pod.job_uid != job.meta.uid || pod.owner_uid != job.meta.uid) continue;
    if (pod.name == RemovalPodName(job)) {
      removal = &pod;
    } else {
      mine.push_back(&pod);
    }
  }
  RankPods();
}

void Context::RankPods() {
  ranks.clear();
  if (!Live()) return;
  ranks.resize(s.placement->nodes.size(), nullptr);
  for (const api::PodSnapshot* pod : mine) {
    if (pod->attempt != s.attempt) continue;  // the attempt check: pods of another attempt are never this one's
    if (pod->node_rank < 0 || pod->node_rank >= static_cast<int64_t>(ranks.size())) continue;
    ranks[static_cast<size_t>(pod->node_rank)] = pod;
  }
}

bool Context::AllExist() const {
  return !ranks.empty() && std::all_of(ranks.begin(), ranks.end(), [](const auto* pod) { return pod != nullptr; });
}

bool Context::Fresh() {
  out.refresh_pods = out.refresh_pods || !in.pods_fresh;  // the freshness check
  return !out.refresh_pods;
}

const api::NodeSnapshot* Context::FindNode(const std::string& name) {
  if (in.surroundings != nullptr) return in.surroundings->FindNode(name);
  if (nodes_.empty()) {
    for (const api::NodeSnapshot& node : in.nodes) nodes_[node.name] = &node;
  }
  auto it = nodes_.find(name);
  return it == nodes_.end() ? nullptr : it->second;
}

bool Context::NodeLost(const std::string& name) {
  const api::NodeSnapshot* node = FindNode(name);
  if (node == nullptr) return true;
  if (!Unreachable(*node) || !node->ready_transition_time) return false;
  TimePoint lost_at = *node->ready_transition_time + opt.pod_termination_timeout;
  if (in.now >= lost_at) return true;
  RequeueAt(lost_at);
  return false;
}

bool Context::Gone(const api::PodSnapshot& pod) {
  if (pod.Terminal()) return true;  // the gone check
  // A pod that was deleted on a lost node is killed when the node comes back; one that was not would run on.
  return pod.deleting && !pod.node.empty() && NodeLost(pod.node);
}

const placement::Yard& Context::Yard() {
  if (in.surroundings != nullptr) return in.surroundings->Yard();
  if (!yard_) {
    std::vector<api::PodSnapshot> pods;
    pods.reserve(in.all_pods.size() + in.pods.size());
    for (const api::PodSnapshot& pod : in.all_pods) {
      if (pod.job_uid != job.meta.uid) pods.push_back(pod);
    }
    pods.insert(pods.end(), in.pods.begin(), in.pods.end());
    std::vector<placement::Booking> claims = in.other_claims;
    for (placement::Booking& own : ClaimsOf(job)) claims.push_back(std::move(own));
    yard_ = placement::Yard::Build(in.nodes, pods, claims, opt.yard);
  }
  return *yard_;
}

const placement::Line& Context::Line(const placement::WaitingGang* asking) {
  if (in.surroundings != nullptr) return in.surroundings->Line(asking);
  std::vector<placement::WaitingGang> waiting;
  for (const placement::WaitingGang& gang : in.waiting) {
    if (gang.uid != job.meta.uid) waiting.push_back(gang);
  }
  if (asking != nullptr) waiting.push_back(*asking);
  std::vector<placement::RunningGang> running;
  for (const placement::RunningGang& gang : in.running) {
    if (gang.uid != job.meta.uid) running.push_back(gang);
  }
  if (auto own = RunningOf(job, NamedPriority())) running.push_back(*std::move(own));
  line_ = placement::FormLine(Yard(), waiting, running, in.now);
  return line_;
}

bool Context::MayBePreempted() {
  return in.surroundings != nullptr ? in.surroundings->MayBePreempted(job.meta.uid) : !in.waiting.empty();
}

api::Exposure Context::OthersExposure() {
  return in.surroundings != nullptr ? in.surroundings->ExposureBeside(job.meta.uid) : in.others_exposure;
}

std::vector<PathNeighbour> Context::PathNeighbours(const PathUser& asking) {
  return in.surroundings != nullptr ? in.surroundings->PathNeighbours(asking) : in.path_neighbours;
}

Result<api::PriorityClass> Context::NamedPriority() {
  const std::string& name = job.spec.priority_class_name;
  return in.surroundings != nullptr ? in.surroundings->Priority(name) : FindPriority(in.priority_classes, name);
}

api::PriorityClass Context::Priority() { return PriorityOr(NamedPriority()); }

void Context::Requeue(Milliseconds after) {
  after = std::max(after, Milliseconds(1));
  if (!out.requeue_after || after < *out.requeue_after) out.requeue_after = after;
}

void Context::Say(const char* type, std::string reason, std::string message) {
  out.events.push_back({type, std::move(reason), std::move(message)});
}

void Context::Act(Action::Kind kind, std::string name, std::string uid, nlohmann::json object) {
  Action action;
  action.kind = kind;
  action.name = std::move(name);
  action.uid = std::move(uid);
  action.object = std::move(object);
  action.attempt = s.attempt;
  out.actions.push_back(std::move(action));
}

bool Context::Condition(std::string_view type, bool value, std::string reason, std::string message) {
  if (type == kReady && !value) EndExposure(s, in.now);
  return SetCondition(s, type, value, std::move(reason), std::move(message), job.meta.generation, in.now);
}

void Context::SetPhase(api::Phase phase, std::string reason) {
  s.phase = phase;
  s.reason = std::move(reason);
}

std::vector<placement::Booking> ClaimsOf(const api::TrainingJob& job) {
  std::vector<placement::Booking> claims;
  if (!job.status.placement || api::IsTerminal(job.status.phase)) return claims;
  for (const api::PlacedNode& node : job.status.placement->nodes) {
    claims.push_back({job.meta.uid, job.status.attempt, node.node, node.gpus});
  }
  return claims;
}

std::string Plural(int64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

int64_t TotalGpus(const api::PlacementStatus& placement) {
  int64_t total = 0;
  for (const api::PlacedNode& node : placement.nodes) total += node.gpus;
  return total;
}

}  // namespace trainyard::lifecycle
