// What every fault test stands on: the real API server, four simulated GPU nodes, a namespace, the proxy, and the real
// trainyard-operator behind it. A test scripts a fault, lets something happen in the cluster, and asserts on what the
// operator ended up doing. When a test ends, the operator must still be there and leave with exit code 0.
// Thread-safety: one thread.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cluster/control_plane.h"
#include "tests/cluster/faults/actions.h"
#include "tests/cluster/faults/fault_proxy.h"
#include "tests/cluster/faults/operator_process.h"
#include "tests/cluster/faults/simulated_nodes.h"

namespace trainyard::faults {

using nlohmann::json;
using std::chrono::seconds;

constexpr Milliseconds kPatience{60'000};  // for what must happen; far more than it takes
// The operator's own times in these tests, where production has 30 s, 150 s and 185 s.
constexpr Milliseconds kApiTimeout{4'000};
constexpr Milliseconds kWatchTime{4'000};
constexpr Milliseconds kWatchIdle{6'000};

class FaultTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  static std::unique_ptr<FaultProxy> NewProxy();
  std::unique_ptr<OperatorProcess> NewOperator(const std::string& name) const;
  std::vector<std::string> Flags(std::vector<std::string> more = {}) const;
  // Starts operator_ without leader election, unless `flags` say otherwise.
  void StartOperator(const std::vector<std::string>& flags = {"--leader-elect=false"});
  // All four caches are filled and watch.
  void AwaitWatching();
  // The operator ends as it should, and a new one is started.
  void RestartOperator();

  // A job of `pods` pods with two GPUs each. Returns its UID.
  std::string Submit(const std::string& name, int pods = 2);
  json AwaitJob(const std::string& name, const std::function<bool(const json&)>& condition,
                Milliseconds timeout = kPatience);
  json AwaitPhase(const std::string& name, const std::string& phase, Milliseconds timeout = kPatience);
  json AwaitRunning(const std::string& name, int64_t attempt, Milliseconds timeout = kPatience);
  json JobNow(const std::string& name);
  // Name of the pod of this rank in the latest attempt; it has a part that only the operator knows.
  std::string PodOf(const std::string& name, int rank);
  // The job has never had other pods than those of attempts 1 to `attempts`, one per rank, and none twice; those of the
  // last attempt exist; the API server was asked for no pod more than once with success.
  void ExpectPodsOnce(const std::string& name, int pods = 2, int64_t attempts = 1);
  // Submits a job, awaits that it runs and then succeeds, with its pods made once and no restart counted.
  void ExpectRunsToTheEnd(const std::string& name);

  // Looks again every 50 ms: for what nothing tells of, such as a metric.
  bool Eventually(const std::function<bool()>& condition, Milliseconds timeout = kPatience) const;
  // Calls between now and `window` later.
  size_t CallsWithin(Milliseconds window, const When& which) const;

  cluster::Cluster& direct();
  const GpuModel& gpu() const;  // of this program
  cluster_test::ControlPlane& plane() const;
  const std::filesystem::path& directory() const { return directory_; }
  std::string ns_;
  std::string token_file_;  // set before StartOperator(): its first word is the bearer token
  std::unique_ptr<FaultProxy> proxy_;
  std::unique_ptr<SimulatedKubelet> kubelet_;
  std::unique_ptr<OperatorProcess> operator_;

 private:
  std::filesystem::path directory_;
  std::unique_ptr<cluster::Informer<json>> jobs_;
};

int64_t AttemptOf(const json& job);
std::string PhaseOf(const json& job);

}  // namespace trainyard::faults
