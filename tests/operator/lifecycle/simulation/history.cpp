#include "tests/operator/lifecycle/simulation/history.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <random>
#include <thread>

#include "operator/api/names.h"
#include "tests/operator/lifecycle/simulation/invariants.h"
#include "tests/operator/lifecycle/simulation/operator_model.h"
#include "tests/operator/lifecycle/simulation/world.h"

namespace trainyard::lifecycle::simulation {
namespace {

// Back-off ends at 5 minutes, growing back too: what has not moved for longer will not.
constexpr Milliseconds kQuiet{700'000};
constexpr int kMaxRounds = 3000;

void UserActs(World& world) {
  std::vector<std::string> names;
  for (const auto& [key, job] : world.jobs.objects()) names.push_back(key);
  if (names.empty()) return;
  const std::string& key = names[static_cast<size_t>(world.Below(static_cast<int64_t>(names.size())))];
  switch (world.Below(6)) {
    case 0:
    case 1: {
      int64_t gpus = 1 + world.Below(10);
      return world.Edit(key, [gpus](api::Spec& spec) { spec.gpus.count = gpus; });
    }
    case 2:
      return world.Edit(key, [](api::Spec& spec) { spec.suspend = !spec.suspend; });
    case 3:
      return world.Edit(key, [](api::Spec& spec) { spec.training.steps += 1; });
    case 4:
      return world.Edit(key, [](api::Spec& spec) { spec.training.steps = spec.training.steps > 0 ? 0 : 100; });
    default:
      if (world.Chance(30)) world.DeleteJob(key, world.Chance(50));
      return;
  }
}

// One event.
void Happen(World& world, std::vector<OperatorModel>& operators) {
  world.Pass(Milliseconds(world.Below(2000)));
  if (world.Chance(2)) world.Pass(Milliseconds(world.Below(200'000)));
  int64_t dice = world.Below(100);
  if (dice < 58) {
    auto& acting = operators[static_cast<size_t>(world.Below(static_cast<int64_t>(operators.size())))];
    return world.Chance(1) ? acting.Restart() : acting.Step();
  }
  if (dice < 88) {
    if (world.Chance(20)) world.CollectGarbage();
    std::vector<std::string> names;
    for (const auto& [name, pod] : world.pods.objects()) names.push_back(name);
    for (const std::string& name : names) {
      if (world.Chance(60)) world.StepPod(name);
    }
    return;
  }
  if (dice < 96) return world.Fault();
  UserActs(world);
}

// Everything moves until nothing does. False: it never came to rest.
bool Settle(World& world, OperatorModel& leader, bool one_operator, std::string& violation) {
  Milliseconds idle{0};
  for (int round = 0; round < kMaxRounds && idle < kQuiet; ++round) {
    bool moved = world.CollectGarbage();
    Milliseconds wait = kQuiet;  // at least a quarter of it: many short looks find nothing that a late one misses
    std::vector<std::string> keys, names;
    for (const auto& [key, job] : world.jobs.objects()) keys.push_back(key);
    for (const std::string& key : keys) {
      moved = leader.ReconcileNow(key) || moved;
      if (leader.requeue()) wait = std::min(wait, *leader.requeue());
    }
    for (const auto& [name, pod] : world.pods.objects()) names.push_back(name);
    for (const std::string& name : names) moved = world.StepPod(name) || moved;
    violation = CheckAlways(world, one_operator);
    if (!violation.empty()) return true;
    if (moved) {
      idle = Milliseconds(0);
    } else {
      wait = std::max(wait, kQuiet / 4);
      world.Pass(wait);
      idle += wait;
    }
  }
  return idle >= kQuiet;
}

std::string End(World& world, std::vector<OperatorModel>& operators) {
  world.Trace("---- calm");
  std::string violation;
  // A deposed operator's last calls, then it is no more.
  for (size_t i = 1; i < operators.size(); ++i) operators[i].Drain();
  world.HealEverything();
  OperatorModel& leader = operators[0];
  for (int wave = 0; wave < 20; ++wave) {
    if (!Settle(world, leader, operators.size() == 1, violation)) return "it never came to rest";
    if (violation.empty()) violation = CheckQuiet(world);
    if (!violation.empty()) return violation;
    std::vector<std::string> running;
    for (const auto& [key, job] : world.jobs.objects()) {
      if (job->status.phase == api::Phase::kRunning) running.push_back(key);
    }
    if (running.empty()) break;
    for (const std::string& key : running) world.FinishRunning(key);
  }
  for (const auto& [key, job] : world.jobs.objects()) {
    const api::JobStatus& s = job->status;
    // Refused for good, or planned for more nodes than there are (five single GPUs on four nodes).
    bool refused = s.phase == api::Phase::kPending && !s.plan;
    auto nodes = static_cast<int64_t>(world.nodes.objects().size());
    refused = refused || (s.phase == api::Phase::kQueued && s.plan->gpus / s.plan->per_node > nodes);
    if (!api::IsTerminal(s.phase) && s.phase != api::Phase::kSuspended && !refused) {
      return key + ": neither finished nor refused although the cluster is empty: " + s.reason;
    }
  }
  return "";
}

}  // namespace

Outcome RunHistory(uint64_t seed, bool trace) {
  World world(seed);
  world.tracing = trace;
  int64_t jobs = 1 + world.Below(world.Chance(50) ? 3 : 6);
  for (int64_t i = 0; i < jobs; ++i) world.CreateJob("job-" + std::to_string(i), 1 + world.Below(8));
  std::vector<OperatorModel> operators;
  operators.emplace_back(world, "leader");
  if (world.Chance(60)) operators.emplace_back(world, "deposed");
  Outcome outcome;
  int64_t events = 60 + world.Below(200);
  for (int64_t i = 0; i < events && outcome.violation.empty(); ++i) {
    Happen(world, operators);
    outcome.violation = CheckAlways(world, operators.size() == 1);
  }
  if (outcome.violation.empty()) outcome.violation = End(world, operators);
  for (const auto& [key, job] : world.jobs.objects()) {
    outcome.succeeded += job->status.phase == api::Phase::kSucceeded ? 1 : 0;
    outcome.failed += job->status.phase == api::Phase::kFailed ? 1 : 0;
    outcome.attempts += job->status.attempt;
    outcome.restarts += job->status.restarts.user + job->status.restarts.infrastructure;
  }
  outcome.preempted = world.preempted;
  outcome.trace = std::move(world.trace);
  return outcome;
}

Summary RunHistories(uint64_t seed, int64_t count) {
  Summary summary;
  std::atomic<int64_t> next{0};
  std::atomic<bool> bad{false};
  std::mutex mutex;  // guards summary
  auto work = [&] {
    for (int64_t i = next++; i < count && !bad; i = next++) {
      Outcome outcome = RunHistory(seed + static_cast<uint64_t>(i), false);
      std::lock_guard lock(mutex);
      ++summary.histories;
      summary.succeeded += outcome.succeeded;
      summary.failed += outcome.failed;
      summary.attempts += outcome.attempts;
      summary.restarts += outcome.restarts;
      summary.preempted += outcome.preempted;
      if (outcome.violation.empty()) continue;
      bad = true;
      if (summary.failed_seed_count++ == 0) {
        summary.first_bad_seed = seed + static_cast<uint64_t>(i);
        summary.first_violation = outcome.violation;
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  return summary;
}

uint64_t SeedFromEnvironment() {
  const char* text = std::getenv("TRAINYARD_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : std::random_device{}();
}

int64_t CountFromEnvironment(int64_t usual) {
  const char* text = std::getenv("TRAINYARD_HISTORIES");
  return text != nullptr ? std::atoll(text) : usual;
}

}  // namespace trainyard::lifecycle::simulation
