// The fixture itself: what other tests rely on.
#include "tests/cluster/control_plane.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

namespace trainyard::cluster_test {
namespace {

using ::testing::HasSubstr;

// It stays where it is: other tests have simulated nodes in the same cluster, and none of them has this label.
const char kPod[] = R"({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "none"}], "nodeSelector": {"nobody": "has"}}})";

TEST(ControlPlane, AdmitsPodsInAFreshNamespaceWithADefaultServiceAccount) {
  TRAINYARD_NEEDS_CLUSTER(plane);
  const std::string ns = plane->FreshNamespace();
  plane->MustKubectl({"-n", ns, "create", "-f", "-"}, kPod);
  EXPECT_EQ(plane->MustKubectl({"-n", ns, "get", "pod", "p", "-o", "jsonpath={.spec.serviceAccountName}"}), "default");
}

TEST(ControlPlane, HasAScheduler) {
  TRAINYARD_NEEDS_CLUSTER(plane);
  const std::string ns = plane->FreshNamespace();
  plane->MustKubectl({"-n", ns, "create", "-f", "-"}, kPod);
  plane->MustKubectl(
      {"-n", ns, "wait", "--for=jsonpath={.status.conditions[0].reason}=Unschedulable", "--timeout=60s", "pod/p"});
}

TEST(ControlPlane, CollectsTheChildrenOfADeletedOwner) {
  TRAINYARD_NEEDS_CLUSTER(plane);
  const std::string ns = plane->FreshNamespace();
  plane->MustKubectl({"-n", ns, "create", "configmap", "owner"});
  const std::string uid = plane->MustKubectl({"-n", ns, "get", "configmap", "owner", "-o", "jsonpath={.metadata.uid}"});
  plane->MustKubectl({"-n", ns, "create", "-f", "-"},
                     R"({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "child", "ownerReferences": [
                        {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": ")" +
                         uid + R"("}]}})");
  plane->MustKubectl({"-n", ns, "delete", "configmap", "owner"});
  plane->MustKubectl({"-n", ns, "wait", "--for=delete", "--timeout=60s", "configmap/child"});
}

TEST(ControlPlane, KnowsTrainingJobs) {
  TRAINYARD_NEEDS_CLUSTER(plane);
  EXPECT_THAT(plane->MustKubectl({"api-resources", "--api-group=trainyard.dev"}), HasSubstr("tj"));
}

TEST(ControlPlane, AServiceAccountMayDoOnlyWhatItWasAllowed) {
  TRAINYARD_NEEDS_CLUSTER(plane);
  const std::string ns = plane->FreshNamespace();
  plane->MustKubectl({"-n", ns, "create", "role", "reader", "--verb=get", "--resource=configmaps"});
  plane->MustKubectl(
      {"-n", ns, "create", "rolebinding", "reader", "--role=reader", "--serviceaccount=" + ns + ":default"});
  plane->MustKubectl({"-n", ns, "create", "configmap", "seen"});
  const std::string kubeconfig = plane->ServiceAccountKubeconfig(ns, "default");
  ASSERT_FALSE(kubeconfig.empty());
  const std::vector<std::string> account = {plane->kubectl(), "--kubeconfig", kubeconfig};
  auto as_account = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), account.begin(), account.end());
    return RunProgram(arguments);
  };
  EXPECT_EQ(as_account({"get", "configmap", "seen"}).code, 0);
  EXPECT_THAT(as_account({"delete", "configmap", "seen"}).err, HasSubstr("Forbidden"));
  std::filesystem::remove(kubeconfig);
}

TEST(ControlPlane, WithSimulatedNodesRunsAPodThatAsksForTheirGpus) {
  TRAINYARD_NEEDS_CLUSTER(shared);
  (void)shared;  // it was only to tell whether one can run at all
  const auto plane = ControlPlane::Start({"--no-crd"});
  ASSERT_TRUE(plane) << plane.error().message;
  const Ran kwok = RunProgram({"bash", TRAINYARD_SOURCE_DIR "/tests/cluster/kwok.sh", "up", "--dir", (*plane)->dir(),
                               "--nodes", "3", "--gpus", "8"});
  if (kwok.code == 77 && !ClusterRequired()) GTEST_SKIP() << kwok.err;
  ASSERT_EQ(kwok.code, 0) << kwok.err;
  const std::string ns = (*plane)->FreshNamespace();
  (*plane)->MustKubectl({"-n", ns, "create", "-f", "-"},
                        R"({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers":
                            [{"name": "c", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}})");
  (*plane)->MustKubectl({"-n", ns, "wait", "--for=condition=Ready", "--timeout=60s", "pod/p"});
  EXPECT_EQ((*plane)->MustKubectl({"get", "nodes", "-l", "nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3", "-o",
                                   "jsonpath={.items[*].status.allocatable.nvidia\\.com/gpu}"}),
            "8 8 8");
  (*plane)->MustKubectl({"-n", ns, "delete", "pod", "p", "--timeout=60s"});
}

TEST(ControlPlane, TwoAtOnceDoNotMeet) {
  TRAINYARD_NEEDS_CLUSTER(first);
  const auto second = ControlPlane::Start({"--no-crd"});
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_NE(first->server(), (*second)->server());
  // Each trusts its own authority only.
  const Ran crossed = RunProgram(
      {first->kubectl(), "--kubeconfig", first->kubeconfig(), "--server", (*second)->server(), "get", "namespaces"});
  EXPECT_NE(crossed.code, 0);
  EXPECT_THAT(crossed.err, HasSubstr("certificate"));
}

TEST(ControlPlane, LeavesNothingBehind) {
  TRAINYARD_NEEDS_CLUSTER(shared);
  (void)shared;
  auto plane = ControlPlane::Start({"--no-crd"});
  ASSERT_TRUE(plane) << plane.error().message;
  const std::string dir = (*plane)->dir();
  EXPECT_EQ(RunProgram({"pgrep", "-f", dir + "/"}).code, 0);
  plane->reset();
  EXPECT_FALSE(std::filesystem::exists(dir));
  EXPECT_EQ(RunProgram({"pgrep", "-fa", dir + "/"}).out, "");
}

TEST(RunProgram, GivesInputAndSeparatesOutputs) {
  const Ran ran = RunProgram({"sh", "-c", "cat; echo $WORD >&2; exit 3"}, "in", {"WORD=err"});
  EXPECT_EQ(ran.code, 3);
  EXPECT_EQ(ran.out, "in");
  EXPECT_EQ(ran.err, "err\n");
}

TEST(RunProgram, SurvivesAProgramThatDoesNotRead) {
  EXPECT_EQ(RunProgram({"true"}, std::string(1 << 20, 'x')).code, 0);
  EXPECT_EQ(RunProgram({"/no/such/program"}).code, 127);
}

}  // namespace
}  // namespace trainyard::cluster_test
