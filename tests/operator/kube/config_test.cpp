#include "operator/kube/config.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/kube/kube_cluster.h"
#include "operator/kube/kubeconfig.h"

namespace trainyard::kube {
namespace {

using ::testing::HasSubstr;

constexpr const char* kGood = R"(apiVersion: v1
kind: Config
current-context: here
contexts:
- {name: here, context: {cluster: c, user: u, namespace: team}}
- {name: there, context: {cluster: c2, user: u}}
clusters:
- name: c
  cluster:
    server: https://10.0.0.1:6443/
    certificate-authority-data: Q0EgUEVN
    tls-server-name: api.example
- {name: c2, cluster: {server: "http://b", certificate-authority: pki/ca.crt, insecure-skip-tls-verify: true}}
users:
- name: u
  user: {client-certificate: /abs/c.crt, client-key: rel.key, token: t0, tokenFile: tok}
)";

Result<Config> Parse(const std::string& text, const std::string& path = "/home/me/.kube/config") {
  return ParseKubeconfig({{path, text}});
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Kubeconfig, ReadsTheCurrentContext) {
  const auto config = Parse(kGood);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->server, "https://10.0.0.1:6443");
  EXPECT_EQ(config->ns, "team");
  EXPECT_EQ(config->tls.ca_pem, "CA PEM");
  EXPECT_EQ(config->tls.server_name, "api.example");
  EXPECT_FALSE(config->tls.insecure_skip_verify);
  EXPECT_EQ(config->tls.client_certificate_file, "/abs/c.crt");
  EXPECT_EQ(config->tls.client_key_file, "/home/me/.kube/rel.key") << "relative to the file";
  EXPECT_EQ(config->token, "t0");
  EXPECT_EQ(config->token_file, "/home/me/.kube/tok");

  const auto other = Parse(Replaced(kGood, "current-context: here", "current-context: there"));
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_EQ(other->server, "http://b");
  EXPECT_EQ(other->ns, "default");
  EXPECT_EQ(other->tls.ca_file, "/home/me/.kube/pki/ca.crt");
  EXPECT_TRUE(other->tls.insecure_skip_verify);
}

TEST(Kubeconfig, WhatCannotWorkSaysWhatToDo) {
  struct Case {
    const char* from;
    const char* to;
    const char* says;
  };
  const Case cases[] = {
      {"current-context: here\n", "", "current-context is not set"},
      {"current-context: here", "current-context: nowhere", "\"nowhere\" is not among its contexts"},
      {"cluster: c,", "cluster: lost,", "cluster \"lost\" of context \"here\" is not defined"},
      {"user: u,", "user: lost,", "user \"lost\" of context \"here\" is not defined"},
      {"https://10.0.0.1:6443/", "10.0.0.1:6443", "must begin with https://"},
      {"https://10.0.0.1:6443/", "https://[fd00::1]:6443", "IPv6"},
      {"tls-server-name: api.example", "proxy-url: http://p", "proxy-url is not supported"},
      {"Q0EgUEVN", "Q0EgUE=N", "certificate-authority-data is not base64"},
      {"tls-server-name: api.example", "tls-server-name: 5", "tls-server-name must be a string"},
      {"client-certificate: /abs/c.crt, ", "", "client-certificate and client-key go together"},
      {"token: t0", "exec: {command: aws}", "kubectl create token"},
      {"token: t0", "auth-provider: {name: gcp}", "auth-provider plug-ins are not run"},
      {"token: t0", "username: me", "username and password"},
      {"clusters:\n", "clusters: 5\nothers:\n", "clusters must be a list"},
      {"- name: c\n", "- nom: c\n", "every entry needs a name"},
      {"apiVersion: v1", "apiVersion: [", "/home/me/.kube/config"},
      {"apiVersion: v1", ",apiVersion: v1", "nothing can begin here"},
  };
  for (const Case& c : cases) {
    const auto config = Parse(Replaced(kGood, c.from, c.to));
    ASSERT_FALSE(config) << c.says;
    EXPECT_EQ(config.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(config.error().message, HasSubstr(c.says));
    EXPECT_THAT(config.error().message, HasSubstr("/home/me/.kube/config"));
  }
}

TEST(Kubeconfig, OfSeveralFilesTheFirstToSaySomethingWins) {
  const std::string first = "current-context: here\nclusters: [{name: c, cluster: {server: \"http://first\"}}]\n";
  const auto config = ParseKubeconfig({{"/a/one", first}, {"/b/two", kGood}});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->server, "http://first");
  EXPECT_EQ(config->tls.client_key_file, "/b/rel.key") << "relative to the file that says so";
}

TEST(Kubeconfig, NoTextMakesItFall) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  int good = 0;
  for (int round = 0; round < 3'000; ++round) {
    std::string text = kGood;
    for (unsigned i = 0, changes = 1 + random() % 4; i < changes; ++i) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, random() % 20);
          break;
        default:
          text.insert(at, std::string(1, "{}[]:,-\n \"'&*!|>%@#"[random() % 19]));
      }
    }
    const auto config = Parse(text);
    if (config) {
      ++good;
      EXPECT_FALSE(config->server.empty()) << text;
    } else {
      EXPECT_FALSE(config.error().message.empty()) << text;
    }
  }
  EXPECT_GT(good, 0);
}

TEST(Base64, DecodesOnlyWhatIsBase64) {
  EXPECT_EQ(DecodeBase64("").value(), "");
  EXPECT_EQ(DecodeBase64("YQ==").value(), "a");
  EXPECT_EQ(DecodeBase64("YWI=").value(), "ab");
  EXPECT_EQ(DecodeBase64("YW\nJj\r\n").value(), "abc");
  EXPECT_EQ(DecodeBase64("AAD/").value(), std::string("\0\0\xff", 3));
  for (const char* bad : {"Y", "YQ", "YQ=", "=YQ=", "Y===", "Y!==", "YQ==YQ==", "====", "YW=j"}) {
    EXPECT_FALSE(DecodeBase64(bad)) << bad;
  }
}

class LoadConfigTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string made = (std::filesystem::temp_directory_path() / "trainyard-config-XXXXXX").string();
    ASSERT_NE(mkdtemp(made.data()), nullptr);
    dir_ = made;
    environment_.variable = [this](const std::string& name) { return variables_[name]; };
    environment_.service_account_dir = made + "/account";
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string Write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = dir_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path.string();
  }

  std::filesystem::path dir_;
  std::map<std::string, std::string> variables_;
  ConfigEnvironment environment_;
};

TEST_F(LoadConfigTest, LooksInTheRightOrder) {
  const auto none = LoadConfig("", environment_);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(none.error().message, HasSubstr("--kubeconfig"));

  variables_["HOME"] = dir_.string();
  Write(".kube/config", Replaced(kGood, "10.0.0.1", "of-home"));
  EXPECT_EQ(LoadConfig("", environment_).value().server, "https://of-home:6443");

  variables_["KUBERNETES_SERVICE_HOST"] = "10.96.0.1";
  variables_["KUBERNETES_SERVICE_PORT"] = "443";
  const auto no_account = LoadConfig("", environment_);
  ASSERT_FALSE(no_account) << "in a pod, another file would be somebody else's";
  EXPECT_THAT(no_account.error().message, HasSubstr("automountServiceAccountToken"));
  Write("account/token", "abc\n");
  Write("account/namespace", "mine\n");
  const auto in_pod = LoadConfig("", environment_);
  ASSERT_TRUE(in_pod) << in_pod.error().message;
  EXPECT_EQ(in_pod->server, "https://10.96.0.1:443");
  EXPECT_EQ(in_pod->ns, "mine");
  EXPECT_EQ(in_pod->token_file, environment_.service_account_dir + "/token");
  EXPECT_EQ(in_pod->tls.ca_file, environment_.service_account_dir + "/ca.crt");

  variables_["KUBERNETES_SERVICE_HOST"] = "fd00::1";
  EXPECT_EQ(LoadConfig("", environment_).value().server, "https://kubernetes.default.svc:443");

  const std::string listed = Write("listed", Replaced(kGood, "10.0.0.1", "of-list"));
  variables_["KUBECONFIG"] = dir_.string() + "/absent:" + listed;
  EXPECT_EQ(LoadConfig("", environment_).value().server, "https://of-list:6443");

  const std::string given = Write("given", Replaced(kGood, "10.0.0.1", "given"));
  EXPECT_EQ(LoadConfig(given, environment_).value().server, "https://given:6443");
  const auto absent = LoadConfig(dir_.string() + "/absent", environment_);
  ASSERT_FALSE(absent);
  EXPECT_THAT(absent.error().message, HasSubstr("/absent"));
}

TEST_F(LoadConfigTest, ADirectoryIsNamedAsOne) {
  variables_["KUBECONFIG"] = dir_.string();
  for (const std::string& given : {dir_.string(), std::string()}) {
    const auto directory = LoadConfig(given, environment_);
    ASSERT_FALSE(directory);
    EXPECT_EQ(directory.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(directory.error().message,
              "kubeconfig: cannot read " + dir_.string() + ": it is a directory, not a file");
  }
}

TEST_F(LoadConfigTest, AMissingCertificateIsToldBeforeTheFirstCall) {
  Config config;
  config.server = "https://10.0.0.1";
  config.source = "my kubeconfig";
  config.tls.ca_file = dir_.string() + "/absent.crt";
  const auto cluster = KubeCluster::Connect(config);
  ASSERT_FALSE(cluster);
  EXPECT_EQ(cluster.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(cluster.error().message, HasSubstr("absent.crt"));
}

}  // namespace
}  // namespace trainyard::kube
