// Fifty gangs on twenty nodes while pods, nodes and the operator die at random, for TRAINYARD_CHAOS_SECONDS (30); 300
// is the run that docs/operations.md tells of. TRAINYARD_SEED repeats a run as far as the machine's timing lets it.
// Gangs that end make room for new ones as long as the chaos lasts. Then everything must come to its end, with nothing
// left behind, and the audit log must show that no promise was broken meanwhile.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "operator/base/ids.h"
#include "tests/cluster/gangs/gang_fixture.h"

namespace trainyard::gangs {
namespace {

using Clock = std::chrono::steady_clock;
using cluster::Kind;
using std::chrono::seconds;

class GangChaos : public GangTest {
 protected:
  static constexpr int kNodes = 20, kGangs = 50;
  static constexpr Milliseconds kOutage{3'000};  // of a node

  void SetUp() override {
    GangTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    const char* given = std::getenv("TRAINYARD_SEED");
    const unsigned seed = given != nullptr ? static_cast<unsigned>(std::atol(given)) : std::random_device()();
    std::printf("TRAINYARD_SEED=%u\n", seed);
    random_.seed(seed);
    const char* length = std::getenv("TRAINYARD_CHAOS_SECONDS");
    chaos_ = seconds(length != nullptr ? std::atol(length) : 30);
  }

  int Roll(int sides) { return std::uniform_int_distribution<int>(0, sides - 1)(random_); }
  template <typename T>
  const T& Any(const std::vector<T>& of) {
    return of[static_cast<size_t>(Roll(static_cast<int>(of.size())))];
  }
  void Count(const char* what) { ++done_[what]; }

  void SubmitOne() {
    static const std::vector<std::pair<int, int>> shapes = {{1, 1}, {1, 2}, {1, 8}, {2, 4}, {2, 8}, {3, 2}, {4, 8}};
    const auto [pods, per_node] = Any(shapes);
    SubmitGang(fmt::format("g{}", submitted_++), pods, per_node);
  }

  // Deletes what has succeeded and submits as many again.
  void Replenish() {
    const auto jobs = direct().List(Kind::kTrainingJob, {ns_, ""});
    if (!jobs) return;
    for (const cluster::Object& job : jobs->items) {
      if (PhaseOf(*job) != "Succeeded") continue;
      ++succeeded_;
      (void)direct().Delete(Kind::kTrainingJob, cluster::KeyOf(*job), {});
      SubmitOne();
    }
  }

  void KillAPod() {
    std::vector<json> pods = kubelet_->Snapshot();
    if (pods.empty()) return;
    const json pod = Any(pods);
    const bool exits = Roll(2) == 0 && pod["status"].value("phase", "") == "Running";
    if (exits) {
      constexpr int kSigkill = 137;  // the kernel, for memory or a person
      (void)kubelet_->Finish(kSigkill, [&](const json& one) { return cluster::UidOf(one) == cluster::UidOf(pod); });
      return Count("containers killed");
    }
    (void)kubelet_->Kill(cluster::KeyOf(pod).name);
    Count("pods deleted");
  }

  void HarmANode() {
    const std::string& node = Any(nodes_->names());
    if (harmed_.contains(node) || harmed_.size() >= kNodes / 4) return;
    const int what = Roll(6);
    if (what == 0) Count("nodes removed"), (void)nodes_->Remove(node);
    if (what == 1) Count("nodes silent"), (void)nodes_->SetReady(node, "Unknown");
    if (what == 2) Count("nodes silent for a minute"), (void)nodes_->SetReady(node, "Unknown", seconds(61));
    if (what == 3) Count("nodes not ready"), (void)nodes_->SetReady(node, "False");
    if (what == 4) Count("nodes cordoned"), (void)nodes_->Cordon(node, true);
    if (what == 5) Count("GPUs lost"), (void)nodes_->SetGpus(node, 7);
    harmed_[node] = {what, Clock::now() + kOutage};
  }

  void HealNodes(bool all) {
    bool any = false;
    for (auto it = harmed_.begin(); it != harmed_.end();) {
      const auto& [node, harm] = *it;
      if (!all && Clock::now() < harm.second) {
        ++it;
        continue;
      }
      if (harm.first == 0) (void)nodes_->Return(node);
      if (harm.first >= 1 && harm.first <= 3) (void)nodes_->SetReady(node, "True");
      if (harm.first == 4) (void)nodes_->Cordon(node, false);
      if (harm.first == 5) (void)nodes_->SetGpus(node, 8);
      it = harmed_.erase(it);
      any = true;
    }
    if (any) kubelet_->LookAgain();
  }

  void KillTheOperator() {
    KillOperator();
    Count("operators killed");
  }

  void Rage() {
    const auto end = Clock::now() + chaos_;
    while (Clock::now() < end) {
      const int dice = Roll(20);
      if (dice < 11) KillAPod();
      if (dice >= 11 && dice < 18) HarmANode();
      if (dice == 18 && done_["operators killed"] < (chaos_ / seconds(5))) KillTheOperator();
      HealNodes(false);
      Replenish();
      // The pace of the chaos, not a wait for anything.
      std::this_thread::sleep_for(Milliseconds(50 + Roll(100)));
    }
    HealNodes(true);
  }

  std::minstd_rand random_;
  seconds chaos_{};
  std::map<std::string, std::pair<int, Clock::time_point>> harmed_;  // node: what, until when
  std::map<std::string, int> done_;
  int submitted_ = 0, succeeded_ = 0;
};

TEST_F(GangChaos, FiftyGangsOnTwentyNodesAllFinishAndNothingLeaks) {
  MakeNodes(kNodes, {.run_time = [](const json& pod) {
              constexpr uint64_t kShortest = 500, kSpread = 2'500;
              return std::optional(Milliseconds(kShortest + StableHash(cluster::UidOf(pod)) % kSpread));
            }});
  StartWatching();
  for (int i = 0; i < kGangs; ++i) SubmitOne();
  Rage();
  const auto calm = Clock::now();
  std::map<std::string, int> phases;
  EXPECT_TRUE(Eventually(
      [&] {
        const auto jobs = direct().List(Kind::kTrainingJob, {ns_, ""});
        if (!jobs) return false;
        phases.clear();
        for (const cluster::Object& job : jobs->items) ++phases[PhaseOf(*job)];
        return phases.size() == 1 && phases.contains("Succeeded");
      },
      seconds(180)))
      << testing::PrintToString(phases);
  const double settled = std::chrono::duration<double>(Clock::now() - calm).count();
  for (const auto& [what, times] : done_) std::printf("%s: %d\n", what.c_str(), times);
  std::printf("%d gangs, %d of them finished in the chaos, the rest within %.1f s of its end\n", submitted_, succeeded_,
              settled);
  EXPECT_GT(done_["operators killed"], 0);
  EXPECT_GT(done_["pods deleted"], 0);
  // Nothing leaks: with the jobs go their pods and Services, and their GPUs are free.
  ASSERT_TRUE(direct().DeleteCollection(Kind::kTrainingJob, {ns_, ""}, std::nullopt));
  EXPECT_TRUE(Eventually([&] {
    const auto jobs = direct().List(Kind::kTrainingJob, {ns_, ""});
    const auto pods = direct().List(Kind::kPod, {ns_, ""});
    const auto services = direct().List(Kind::kService, {ns_, ""});
    return jobs && pods && services && jobs->items.empty() && pods->items.empty() && services->items.empty();
  })) << "something is left of deleted jobs";
  EXPECT_TRUE(Eventually([&] { return operator_->Metric("trainyard_gpus", {"state=\"used\""}) == 0; }))
      << "GPUs are booked for nobody";
  SubmitGang("whole-yard", kNodes, 8);
  AwaitPhase("whole-yard", "Succeeded");
}

}  // namespace
}  // namespace trainyard::gangs
