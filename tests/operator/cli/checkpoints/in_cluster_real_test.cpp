// The pod of a checkpoints command against a real API server: it is admitted, its end is seen, and nothing stays. No
// kubelet runs it here; tests/cluster/e2e.sh does that.
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "operator/cli/checkpoints/in_cluster.h"
#include "operator/cli/exit_codes.h"
#include "tests/cluster/control_plane.h"

namespace trainyard::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr const char* kJob = R"(
apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: llama}
spec:
  model: {architecture: {family: Llama, layers: 4, hiddenSize: 256, attentionHeads: 8, kvHeads: 4, ffnSize: 688}}
  data: {format: Text, train: [{volume: corpus, path: train.txt}]}
  training: {sequenceLength: 128, globalBatchSize: 16, steps: 400}
  gpus: {count: 1}
  checkpoint: {volume: checkpoints, path: runs/llama}
  volumes:
    - {name: corpus, persistentVolumeClaim: {claimName: corpus}}
    - {name: checkpoints, persistentVolumeClaim: {claimName: checkpoints}}
)";

TEST(InClusterReal, ThePodIsAdmittedAndGoesInTheEnd) {
  TRAINYARD_NEEDS_CLUSTER(plane);
  const std::string ns = plane->FreshNamespace();
  plane->MustKubectl({"-n", ns, "apply", "-f", "-"}, kJob);
  const auto pods = [&] {
    return json::parse(
        plane->MustKubectl({"-n", ns, "get", "pods", "-l", "trainyard.dev/role=checkpoints", "-o", "json"}))["items"];
  };
  json seen;
  std::ostringstream out, err;
  const RealClock clock;
  const auto wait = [&](Milliseconds) {
    if (!seen.is_null()) return true;
    const json found = pods();
    if (found.empty()) return true;
    seen = found[0];
    const json status = {
        {"status",
         {{"phase", "Pending"},
          {"containerStatuses",
           json::array({{{"name", "checkpoints"},
                         {"image", "registry/trainer:1"},
                         {"imageID", ""},
                         {"ready", false},
                         {"restartCount", 0},
                         {"state", {{"waiting", {{"reason", "ErrImagePull"}, {"message", "no such image"}}}}}}})}}}};
    plane->MustKubectl({"-n", ns, "patch", "pod", seen["metadata"]["name"].get<std::string>(), "--subresource=status",
                        "--type=merge", "-p", status.dump()});
    return true;
  };
  InClusterFlags flags;
  flags.job = "llama";
  flags.ns = ns;
  flags.kubeconfig = plane->kubeconfig();
  flags.image = "registry/trainer:1";
  const Result<kube::Config> config = ClusterConfig(flags);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(RunInCluster(*config, flags, {"list", kDirectory}, {out, err, clock, wait}), kExitBadInput);
  EXPECT_THAT(err.str(), HasSubstr("its pod cannot run: ErrImagePull: no such image"));
  ASSERT_FALSE(seen.is_null());
  EXPECT_EQ(seen["spec"]["containers"][0]["command"],
            (json{"trainyard", "checkpoints", "list", "/volumes/checkpoints/runs/llama"}));
  EXPECT_EQ(seen["spec"]["volumes"].size(), 1u) << "no token of a service account";
  EXPECT_EQ(pods(), json::array()) << "it does not stay";

  err.str("");
  flags.job = "nobody";
  EXPECT_EQ(RunInCluster(*config, flags, {"list", kDirectory}, {out, err, clock, wait}), kExitNotFound);
  EXPECT_EQ(err.str(), "trainyard: there is no TrainingJob " + ns + "/nobody\n");
}

}  // namespace
}  // namespace trainyard::cli
