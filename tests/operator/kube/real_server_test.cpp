// What only a real API server can show: TLS, tokens, expired versions, an informer that lives through all of it.
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/cluster/informer.h"
#include "operator/cluster/snapshot.h"
#include "operator/http/transport.h"
#include "operator/kube/kube_cluster.h"
#include "tests/cluster/control_plane.h"
#include "tests/operator/cluster/conformance.h"

namespace trainyard::kube {
namespace {

using cluster::Kind;
using nlohmann::json;
using ::testing::HasSubstr;

constexpr Milliseconds kPatience{30'000};

class RealServerTest : public testing::Test {
 protected:
  static Config ConfigOf(const cluster_test::ControlPlane& plane) {
    const auto config = LoadConfig(plane.kubeconfig());
    EXPECT_TRUE(config) << config.error().message;
    return *config;
  }
  static Result<std::string> VersionWith(const Config& config) {
    auto cluster = KubeCluster::Connect(config);
    if (!cluster) return Fail(cluster.error());
    return (*cluster)->ServerVersion();
  }
};

TEST_F(RealServerTest, TrustsTheClustersAuthorityAlone) {
  TRAINYARD_NEEDS_CLUSTER(plane);
  const Config good = ConfigOf(*plane);
  const auto version = VersionWith(good);
  ASSERT_TRUE(version) << version.error().message;
  EXPECT_THAT(*version, HasSubstr("v1."));

  const auto refused = [](const Config& config, const char* why) {
    const auto outcome = VersionWith(config);
    ASSERT_FALSE(outcome) << why;
    EXPECT_EQ(outcome.error().code, ErrorCode::kUnavailable) << why;
    EXPECT_THAT(outcome.error().message, HasSubstr("no secure connection")) << why;
  };
  Config another = good;
  another.tls.ca_file.clear();
  std::ifstream system("/etc/ssl/certs/ca-certificates.crt");
  const std::string bundle((std::istreambuf_iterator<char>(system)), {});
  if (!bundle.empty()) {
    another.tls.ca_pem = bundle;
    refused(another, "another authority");
  }
  another.tls.ca_pem = "no certificate";
  refused(another, "an authority that is none");
  Config wrong_name = good;
  wrong_name.tls.server_name = "another.example";
  refused(wrong_name, "a name that the certificate lacks");
  Config right_name = good;
  right_name.tls.server_name = "kubernetes.default.svc";
  EXPECT_TRUE(VersionWith(right_name));
  Config careless = good;
  careless.tls.ca_file.clear();
  careless.tls.ca_pem.clear();
  careless.tls.insecure_skip_verify = true;
  EXPECT_TRUE(VersionWith(careless));
}

TEST_F(RealServerTest, WithoutCredentialsTheServerRefuses) {
  TRAINYARD_NEEDS_CLUSTER(plane);
  Config stranger = ConfigOf(*plane);
  stranger.tls.client_certificate_file.clear();
  stranger.tls.client_certificate_pem.clear();
  stranger.tls.client_key_file.clear();
  stranger.tls.client_key_pem.clear();
  stranger.token = "no-such-token";
  auto kube = KubeCluster::Connect(stranger).value();
  const auto list = kube->List(Kind::kPod, {"default", ""});
  ASSERT_FALSE(list);
  EXPECT_EQ(list.error().code, ErrorCode::kUnavailable) << list.error().message;
  EXPECT_THAT(list.error().message, HasSubstr("HTTP 401"));
}

TEST_F(RealServerTest, AServiceAccountMayDoWhatItsRoleSays) {
  TRAINYARD_NEEDS_CLUSTER(plane);
  const std::string ns = plane->FreshNamespace("account");
  plane->MustKubectl({"-n", ns, "create", "serviceaccount", "reader"});
  plane->MustKubectl({"-n", ns, "create", "role", "reader", "--verb=get,list", "--resource=pods"});
  plane->MustKubectl(
      {"-n", ns, "create", "rolebinding", "reader", "--role=reader", "--serviceaccount=" + ns + ":reader"});
  const auto config = LoadConfig(plane->ServiceAccountKubeconfig(ns, "reader"));
  ASSERT_TRUE(config) << config.error().message;
  auto kube = KubeCluster::Connect(*config).value();
  EXPECT_TRUE(kube->List(Kind::kPod, {ns, ""}));
  const auto created = kube->Create(Kind::kPod, cluster::PodIn(ns, "a"));
  ASSERT_FALSE(created);
  EXPECT_EQ(created.error().code, ErrorCode::kPermissionDenied);
  EXPECT_THAT(created.error().message, HasSubstr("cannot create resource \"pods\""));
}

TEST_F(RealServerTest, RefusedObjectsSayEveryCauseInOneLine) {
  TRAINYARD_NEEDS_CLUSTER(plane);
  const std::string ns = plane->FreshNamespace("refused");
  auto kube = KubeCluster::Connect(ConfigOf(*plane)).value();
  json pod = cluster::PodIn(ns, "a");
  pod["spec"]["restartPolicy"] = "Sometimes";
  pod["spec"]["containers"][0]["image"] = "";
  const auto created = kube->Create(Kind::kPod, pod);
  ASSERT_FALSE(created);
  EXPECT_EQ(created.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(created.error().message, HasSubstr("restartPolicy"));
  EXPECT_THAT(created.error().message, HasSubstr("image"));
  EXPECT_EQ(created.error().message.find('\n'), std::string::npos);
}

// A server without a watch cache answers from etcd, whose compaction really throws history away.
TEST_F(RealServerTest, ACompactionExpiresWatchesAndPages) {
  auto started = cluster_test::ControlPlane::Start({"--no-crd"}, {"TRAINYARD_APISERVER_FLAGS=--watch-cache=false"});
  if (!started && !cluster_test::ClusterRequired()) GTEST_SKIP() << started.error().message;
  ASSERT_TRUE(started) << started.error().message;
  cluster_test::ControlPlane& plane = **started;
  if (plane.etcd().empty()) GTEST_SKIP() << "this cluster's etcd is not ours to compact";
  const std::string ns = plane.FreshNamespace("compact");
  auto kube = KubeCluster::Connect(ConfigOf(plane)).value();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(kube->Create(Kind::kPod, cluster::PodIn(ns, "p" + std::to_string(i))));
  const auto first = kube->List(Kind::kPod, {ns, "", 2});
  ASSERT_TRUE(first) << first.error().message;
  ASSERT_FALSE(first->next.empty());

  // An informer that is in the middle of it all has to come out with every pod.
  cluster::Informer<std::string> informer(
      *kube, Kind::kPod, {.ns = ns, .page_size = 2},
      [](const json& pod) -> Result<std::string> { return cluster::KeyOf(pod).name; });
  informer.Start();
  ASSERT_TRUE(informer.WaitSynced(kPatience));

  json pod = kube->Get(Kind::kPod, {ns, "p0"}).value();
  for (int i = 0; i < 3; ++i) {
    pod["metadata"]["labels"]["round"] = std::to_string(i);
    pod = kube->Replace(Kind::kPod, pod).value();
  }
  // A revision of etcd is what the API calls a resource version.
  http::Request compact;
  compact.method = "POST";
  compact.url = plane.etcd() + "/v3/kv/compaction";
  compact.body = json({{"revision", cluster::ResourceVersionOf(pod)}, {"physical", true}}).dump();
  const auto compacted = http::NewPlainTransport()->Send(compact);
  ASSERT_TRUE(compacted) << compacted.error().message;
  ASSERT_EQ(compacted->status, 200) << compacted->body;

  auto late = kube->Watch(Kind::kPod, {ns, "", first->resource_version});
  if (late) {
    TRAINYARD_EXPECT_CODE(kGone, (*late)->Next(kPatience));
  } else {
    EXPECT_EQ(ErrorCodeName(late.error().code), "Gone") << late.error().message;
  }
  const auto second = kube->List(Kind::kPod, {ns, "", 2, first->next});
  ASSERT_FALSE(second) << "the token should have expired";
  EXPECT_EQ(ErrorCodeName(second.error().code), "Gone") << second.error().message;
  const auto whole = kube->List(Kind::kPod, {ns, ""});
  ASSERT_TRUE(whole) << whole.error().message;
  EXPECT_EQ(whole->items.size(), 5u);

  ASSERT_TRUE(kube->Create(Kind::kPod, cluster::PodIn(ns, "after")));
  EXPECT_TRUE(informer.WaitFor(kPatience, [&](const auto& items) { return items.contains({ns, "after"}); }));
  EXPECT_EQ(informer.List().size(), 6u);
  informer.Stop();
}

TEST_F(RealServerTest, AnInformerFollowsALargeListInPages) {
  TRAINYARD_NEEDS_CLUSTER(plane);
  const std::string ns = plane->FreshNamespace("pages");
  auto kube = KubeCluster::Connect(ConfigOf(*plane), {.qps = 0}).value();
  for (int i = 0; i < 25; ++i) ASSERT_TRUE(kube->Create(Kind::kPod, cluster::PodIn(ns, "p" + std::to_string(i))));
  cluster::Informer<api::PodSnapshot> informer(*kube, Kind::kPod, {.ns = ns, .page_size = 10}, cluster::PodFromJson);
  informer.Start();
  ASSERT_TRUE(informer.WaitSynced(kPatience));
  EXPECT_EQ(informer.List().size(), 25u);
  ASSERT_TRUE(kube->DeleteCollection(Kind::kPod, {ns, ""}, 0));
  EXPECT_TRUE(informer.WaitFor(kPatience, [](const auto& items) { return items.empty(); }));
  const cluster::InformerStats stats = informer.stats();
  EXPECT_EQ(stats.lists, 1u);
  EXPECT_EQ(stats.watches, 1u);
  EXPECT_EQ(stats.problems, 0u);
  EXPECT_GT(stats.last_event.time_since_epoch().count(), 0);
  informer.Stop();
}

}  // namespace
}  // namespace trainyard::kube
