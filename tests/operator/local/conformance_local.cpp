// The conformance suite against the cluster in memory.
#include <cstdlib>
#include <filesystem>

#include "operator/local/local_cluster.h"
#include "tests/operator/cluster/conformance.h"

namespace trainyard::cluster {
namespace {

std::shared_ptr<Cluster> MakeLocal() {
  std::string directory = (std::filesystem::temp_directory_path() / "trainyard-conformance-XXXXXX").string();
  EXPECT_NE(mkdtemp(directory.data()), nullptr);
  local::LocalOptions options;
  options.state_dir = directory;
  options.watch_window = 32;
  auto cluster = local::LocalCluster::Start(options);
  EXPECT_TRUE(cluster.has_value());
  return {cluster->release(), [directory](Cluster* made) {
            delete made;
            std::filesystem::remove_all(directory);
          }};
}

// More changes than the window holds.
std::string Churn(Cluster& cluster, const std::string& ns) {
  nlohmann::json pod = *cluster.Create(Kind::kPod, PodIn(ns, "churn"));
  const std::string before = ResourceVersionOf(pod);
  for (int i = 0; i < 100; ++i) {
    pod["metadata"]["labels"]["round"] = std::to_string(i);
    pod = *cluster.Replace(Kind::kPod, pod);
  }
  return before;
}

INSTANTIATE_TEST_SUITE_P(Local, ClusterConformance,
                         testing::Values(ClusterFactory{"Local", MakeLocal, [] { return std::string("default"); },
                                                        Churn}),
                         FactoryName);

}  // namespace
}  // namespace trainyard::cluster
