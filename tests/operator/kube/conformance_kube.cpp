// The conformance suite of Cluster against a real API server.
#include <cstdlib>

#include "operator/http/transport.h"
#include "operator/kube/kube_cluster.h"
#include "tests/cluster/control_plane.h"
#include "tests/operator/cluster/conformance.h"

namespace trainyard::cluster {
namespace {

Result<cluster_test::ControlPlane*> Plane() { return cluster_test::ControlPlane::Shared(); }

// Older than anything that the server's watch cache has ever held.
std::string BeforeTheCache(Cluster&, const std::string&) { return "1"; }

std::shared_ptr<Cluster> MakeKube() {
  const auto plane = Plane();
  if (!plane) {
    EXPECT_FALSE(cluster_test::ClusterRequired()) << plane.error().message;
    return nullptr;
  }
  const auto config = kube::LoadConfig((*plane)->kubeconfig());
  EXPECT_TRUE(config.has_value()) << config.error().message;
  auto cluster = kube::KubeCluster::Connect(*config, {.qps = 0});
  EXPECT_TRUE(cluster.has_value()) << cluster.error().message;
  return *std::move(cluster);
}

std::string FreshNamespace() {
  const auto plane = Plane();
  return plane ? (*plane)->FreshNamespace("conformance") : std::string();
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Kube, ClusterConformance,
                         testing::Values(ClusterFactory{"Kube", MakeKube, FreshNamespace, BeforeTheCache,
                                                        "no control plane can run here"}),
                         FactoryName);

}  // namespace trainyard::cluster
