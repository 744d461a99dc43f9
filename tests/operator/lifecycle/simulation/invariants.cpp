#include "tests/operator/lifecycle/simulation/invariants.h"

#include <algorithm>
#include <map>
#include <set>

#include "operator/api/names.h"
#include "tests/operator/lifecycle/simulation/operator_model.h"

namespace trainyard::lifecycle::simulation {
namespace {

// Gone by the rule of the lost node: whatever its process does now, the fence of the checkpoint holds it off.
bool Lost(World& world, const api::PodSnapshot& pod) {
  if (world.lost_pods.contains(pod.uid)) return true;
  if (pod.node.empty() || !pod.deleting) return false;
  auto node = world.nodes.Get(pod.node);
  bool lost = node == nullptr ||
              (!node->ready && world.now - *node->ready_transition_time >= SimulationOptions().pod_termination_timeout);
  if (lost) world.lost_pods.insert(pod.uid);
  return lost;
}

std::string OneLiveAttempt(World& world) {
  std::map<std::string, int64_t> live;
  for (const auto& [name, pod] : world.pods.objects()) {
    if (pod->job_uid.empty() || pod->gated || pod->Terminal() || Lost(world, *pod)) continue;
    auto [it, added] = live.try_emplace(pod->job_uid, pod->attempt);
    if (!added && it->second != pod->attempt) {
      return name + ": attempts " + std::to_string(it->second) + " and " + std::to_string(pod->attempt) +
             " run at the same time";
    }
  }
  return "";
}

std::string NoMorePodsThanPlaced(const World& world) {
  std::map<std::pair<std::string, int64_t>, size_t> count;
  for (const auto& [name, pod] : world.pods.objects()) {
    if (!pod->job_uid.empty()) ++count[{pod->job_uid, pod->attempt}];
  }
  for (const auto& [key, pods] : count) {
    auto job = world.facts.find(key.first);
    if (job == world.facts.end() || !job->second.contains(key.second)) return key.first + ": pods without a claim";
    if (pods > job->second.at(key.second).nodes.size()) return key.first + ": more pods than the placement has nodes";
  }
  return "";
}

std::string NoOverbooking(const World& world, bool claims_too) {
  std::map<std::string, int64_t> bound, booked;
  std::set<std::pair<std::string, std::pair<std::string, int64_t>>> podded;
  for (const auto& [name, pod] : world.pods.objects()) {
    if (pod->job_uid.empty() || pod->Terminal()) continue;
    if (!pod->node.empty()) bound[pod->node] += pod->gpus;
    // A job that is deleted takes its claim with it while its last pods may still be unknown to a lagging cache; the
    // scheduler and the check before un-gating hold the next gang off until the garbage collector has been.
    bool owned = std::any_of(world.jobs.objects().begin(), world.jobs.objects().end(),
                             [&pod](const auto& job) { return job.second->meta.uid == pod->owner_uid; });
    if (!owned) continue;
    booked[pod->pinned_node] += pod->gpus;
    podded.insert({pod->pinned_node, {pod->job_uid, pod->attempt}});
  }
  if (claims_too) {
    for (const auto& [key, job] : world.jobs.objects()) {
      for (const placement::Booking& claim : ClaimsOf(*job)) {
        if (!podded.contains({claim.node, {claim.job_uid, claim.attempt}})) booked[claim.node] += claim.gpus;
      }
    }
  }
  for (const auto& [name, node] : world.nodes.objects()) {
    int64_t has = node->allocatable.at(api::kGpuResource);
    if (bound[name] > has) return name + ": more GPUs bound than it has";
    if (claims_too && booked[name] > has) return name + ": more GPUs booked than it has";
  }
  return "";
}

std::string QuietJob(const World& world, const api::TrainingJob& job) {
  const api::JobStatus& s = job.status;
  size_t running = 0, unfinished = 0, done = 0;
  for (const auto& [name, pod] : world.pods.objects()) {
    if (pod->job_uid != job.meta.uid) continue;
    if (pod->attempt == s.attempt && pod->phase == api::PodPhase::kSucceeded) ++done;
    if (pod->Terminal()) continue;
    ++unfinished;
    if (pod->attempt == s.attempt && pod->phase == api::PodPhase::kRunning && !pod->gated) ++running;
  }
  std::string where = job.meta.name + " (" + std::string(api::ToString(s.phase)) + ", " + s.reason + "): ";
  if (s.phase == api::Phase::kRunning) {
    if (!s.placement || running + done != s.placement->nodes.size() || unfinished != running) {
      return where + std::to_string(running) + " of " + std::to_string(unfinished) + " pods run";
    }
    int64_t gpus = 0;
    for (const api::PlacedNode& node : s.placement->nodes) gpus += node.gpus;
    if (s.gpus != gpus) return where + "status.gpus is " + std::to_string(s.gpus);
    if (!world.services.contains(job.meta.uid)) return where + "its Service is gone";
    return "";
  }
  if (unfinished > 0) return where + std::to_string(unfinished) + " pods are left";
  if (s.gpus != 0) return where + "status.gpus is " + std::to_string(s.gpus);
  if (s.reason.empty()) return where + "no reason";
  bool rests = api::IsTerminal(s.phase) || (s.phase == api::Phase::kSuspended && job.spec.suspend);
  bool waits = s.phase == api::Phase::kPending || s.phase == api::Phase::kPlacing || s.phase == api::Phase::kQueued;
  if (!rests && !waits) return where + "neither runs, rests nor waits";
  if (!api::IsTerminal(s.phase) && s.placement) return where + "a claim without pods";
  return "";
}

// Whoever waits at the end has to: there is no room for it, and nobody whom it may stop for it.
std::string WhoWaitsHasTo(const World& world) {
  std::vector<api::NodeSnapshot> nodes;
  std::vector<api::PodSnapshot> pods;
  std::vector<placement::Booking> claims;
  std::vector<placement::WaitingGang> waiting;
  std::vector<placement::RunningGang> running;
  for (const auto& [name, node] : world.nodes.objects()) nodes.push_back(*node);
  for (const auto& [name, pod] : world.pods.objects()) pods.push_back(*pod);
  for (const auto& [key, job] : world.jobs.objects()) {
    for (placement::Booking& claim : ClaimsOf(*job)) claims.push_back(std::move(claim));
    Stand(*job, waiting, running);
  }
  const placement::Yard yard = placement::Yard::Build(nodes, pods, claims, SimulationOptions().yard);
  for (const placement::LineEntry& entry : placement::FormLine(yard, waiting, running, world.now).entries) {
    if (entry.fits) return entry.name + ": waits, though it fits";
    if (!entry.victims.empty()) return entry.name + ": waits, though others of less importance run where it could";
  }
  return "";
}

}  // namespace

std::string CheckAlways(World& world, bool one_operator) {
  if (!world.violation.empty()) return world.violation;
  if (std::string v = OneLiveAttempt(world); !v.empty()) return v;
  if (std::string v = NoMorePodsThanPlaced(world); !v.empty()) return v;
  return NoOverbooking(world, one_operator);
}

std::string CheckQuiet(const World& world) {
  for (const auto& [key, job] : world.jobs.objects()) {
    if (std::string v = QuietJob(world, *job); !v.empty()) return v;
  }
  if (std::string v = WhoWaitsHasTo(world); !v.empty()) return v;
  return NoOverbooking(world, true);
}

}  // namespace trainyard::lifecycle::simulation
