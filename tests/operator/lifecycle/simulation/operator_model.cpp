#include "tests/operator/lifecycle/simulation/operator_model.h"

#include <nlohmann/json.hpp>

#include "operator/api/json.h"

namespace trainyard::lifecycle::simulation {
namespace {

int64_t Version(const api::TrainingJob& job) { return std::stoll(job.meta.resource_version); }

}  // namespace

Options SimulationOptions() {
  Options options;
  options.startup_deadline = std::chrono::hours(24);  // histories may leave a kubelet alone for long
  return options;
}

void Stand(const api::TrainingJob& job, std::vector<placement::WaitingGang>& waiting,
           std::vector<placement::RunningGang>& running) {
  const auto found = FindPriority(SimulationClasses(), job.spec.priority_class_name);
  const api::PriorityClass priority = found ? *found : api::PriorityClass();
  if (auto gang = WaitingOf(job, SimulationOptions(), priority)) waiting.push_back(*std::move(gang));
  if (auto gang = RunningOf(job, found)) running.push_back(*std::move(gang));
}

OperatorModel::OperatorModel(World& world, std::string name) : world_(world), name_(std::move(name)) { Sync(); }

void OperatorModel::Sync() {
  jobs_.Sync(world_.jobs);
  pods_.Sync(world_.pods);
  nodes_.Sync(world_.nodes);
}

void OperatorModel::Restart() {
  world_.Trace(name_ + " restarts");
  under_way_.reset();
  written_.clear();
  stalled_ = {};
  Sync();
}

void OperatorModel::FollowWatches() {
  auto some = [this] { return static_cast<size_t>(world_.Chance(70) ? 1000 : world_.Below(6)); };
  for (int64_t& left : stalled_) {
    if (left > 0) --left;
    if (left == 0 && world_.Chance(2)) left = world_.Below(60);  // this watch hangs for a while
  }
  auto follows = [this](size_t kind) { return stalled_[kind] == 0 && world_.Chance(70); };
  if (follows(0)) jobs_.Advance(world_.jobs, some());
  if (follows(1)) pods_.Advance(world_.pods, some());
  if (follows(2)) nodes_.Advance(world_.nodes, some());
}

void OperatorModel::Begin(const std::string& key) {
  auto it = jobs_.objects().find(key);
  if (it == jobs_.objects().end()) return;
  Reconcile reconcile;
  Input& in = reconcile.input;
  in.job = *it->second;
  auto written = written_.find(key);
  if (written != written_.end() && Version(written->second) > Version(in.job)) in.job = written->second;
  for (const auto& [name, pod] : pods_.objects()) {
    if (pod->job_uid == in.job.meta.uid) in.pods.push_back(*pod);
    in.all_pods.push_back(*pod);
  }
  for (const auto& [name, node] : nodes_.objects()) in.nodes.push_back(*node);
  for (const auto& [other, job] : jobs_.objects()) {
    if (other == key) continue;
    auto newer = written_.find(other);
    bool overlaid = newer != written_.end() && Version(newer->second) > Version(*job);
    const api::TrainingJob& latest = overlaid ? newer->second : *job;
    for (placement::Booking& claim : ClaimsOf(latest)) in.other_claims.push_back(std::move(claim));
    Stand(latest, in.waiting, in.running);
  }
  in.priority_classes = SimulationClasses();
  in.service_exists = world_.services.contains(in.job.meta.uid);
  in.now = world_.now;
  if (in.job.status.attempt > 0 && !world_.calm && world_.Chance(30)) {
    in.progress_attempt = in.job.status.attempt - world_.Below(2);
    in.progress = api::Progress{.step = world_.Below(1000), .steps = 1000, .trainer_phase = "Training"};
  }
  under_way_ = std::move(reconcile);
}

void OperatorModel::Advance() {
  Reconcile& r = *under_way_;
  switch (r.stage) {
    case Stage::kDecide: {
      r.decision = Decide(r.input, SimulationOptions());
      if (!r.decision.refresh_pods) {
        r.stage = Stage::kWrite;
      } else if (r.input.pods_fresh) {
        world_.violation = "asked for fresh pods twice";
        under_way_.reset();
      } else {
        r.stage = Stage::kListPods;
      }
      return;
    }
    case Stage::kListPods: {
      r.input.pods.clear();
      for (const auto& [name, pod] : world_.pods.objects()) {
        if (pod->job_uid == r.input.job.meta.uid) r.input.pods.push_back(*pod);
      }
      r.input.pods_fresh = true;
      r.stage = Stage::kDecide;
      return;
    }
    case Stage::kWrite: {
      requeue_ = r.decision.requeue_after;
      r.stage = Stage::kAct;
      const std::string& key = r.input.job.meta.name;
      if (api::StatusToJson(r.decision.status) == api::StatusToJson(r.input.job.status)) return;
      if (!world_.WriteStatus(key, r.input.job.meta.resource_version, r.decision.status)) {
        // What was written before stays in the overlay: the cache may still show the time before that claim.
        under_way_.reset();
        return;
      }
      r.did = true;
      written_[key] = *world_.jobs.Get(key);
      return;
    }
    case Stage::kAct: {
      if (r.next_action == r.decision.actions.size()) {
        under_way_.reset();
        return;
      }
      r.did = true;
      if (!world_.Execute(r.decision.actions[r.next_action++], r.input.job)) under_way_.reset();
      return;
    }
  }
}

void OperatorModel::Step() {
  FollowWatches();
  if (under_way_) return Advance();
  if (jobs_.objects().empty()) return;
  auto it = jobs_.objects().begin();
  std::advance(it, world_.Below(static_cast<int64_t>(jobs_.objects().size())));
  Begin(it->first);
}

void OperatorModel::Drain() {
  while (under_way_) Advance();
}

bool OperatorModel::ReconcileNow(const std::string& job) {
  Drain();
  Sync();
  Begin(job);
  bool did = false;
  while (under_way_) {
    Advance();
    did = did || (under_way_ && under_way_->did);
  }
  return did;
}

}  // namespace trainyard::lifecycle::simulation
