#include "operator/kube/config.h"

#include <cstdlib>
#include <utility>
#include <vector>

#include "operator/base/files.h"
#include "operator/kube/kubeconfig.h"

namespace trainyard::kube {
namespace {

// What in-cluster clients call when the address is one of IPv6, which our HTTP library cannot.
constexpr const char* kServiceName = "kubernetes.default.svc";

std::vector<std::string> Split(const std::string& list) {
  std::vector<std::string> paths;
  for (size_t start = 0; start <= list.size();) {
    const size_t end = std::min(list.find(':', start), list.size());
    if (end > start) paths.push_back(list.substr(start, end - start));
    start = end + 1;
  }
  return paths;
}

std::string Trimmed(std::string text) {
  const size_t last = text.find_last_not_of(" \t\r\n");
  text.resize(last == std::string::npos ? 0 : last + 1);
  return text;
}

// Files of a list may be absent, as long as one is there.
Result<Config> FromFiles(const std::vector<std::string>& paths, const std::string& said_by) {
  std::vector<KubeconfigFile> files;
  for (const std::string& path : paths) {
    Result<std::string> text = ReadFile(path);
    if (text) {
      files.push_back({path, *std::move(text)});
    } else if (text.error().code != ErrorCode::kNotFound) {
      return Fail(text.error().Wrap("kubeconfig"));
    }
  }
  if (files.empty()) {
    std::string names;
    for (const std::string& path : paths) names += (names.empty() ? "" : ", ") + path;
    return Fail(ErrorCode::kNotFound, "kubeconfig " + names + " (" + said_by + ") does not exist");
  }
  return ParseKubeconfig(files);
}

}  // namespace

ConfigEnvironment ProcessEnvironment() {
  ConfigEnvironment environment;
  environment.variable = [](const std::string& name) {
    const char* value = std::getenv(name.c_str());
    return std::string(value ? value : "");
  };
  return environment;
}

Result<Config> InClusterConfig(const ConfigEnvironment& environment) {
  const std::string host = environment.variable("KUBERNETES_SERVICE_HOST");
  const std::string port = environment.variable("KUBERNETES_SERVICE_PORT");
  if (host.empty() || port.empty()) {
    return Fail(ErrorCode::kFailedPrecondition,
                "not in a cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set");
  }
  const std::string& dir = environment.service_account_dir;
  const Result<std::string> token = ReadFile(dir + "/token");
  if (!token) {
    return Fail(ErrorCode::kFailedPrecondition, "in a cluster, but " + dir +
                                                    "/token cannot be read: the pod needs a service account with "
                                                    "automountServiceAccountToken");
  }
  Config config;
  config.server = "https://" + (host.find(':') == std::string::npos ? host : std::string(kServiceName)) + ":" + port;
  config.tls.ca_file = dir + "/ca.crt";
  config.token_file = dir + "/token";
  config.ns = Trimmed(ReadFile(dir + "/namespace").value_or("default"));
  config.source = dir;
  return config;
}

Result<Config> LoadConfig(const std::string& path, const ConfigEnvironment& environment) {
  if (!path.empty()) return FromFiles({path}, "given");
  if (const std::vector<std::string> paths = Split(environment.variable("KUBECONFIG")); !paths.empty()) {
    return FromFiles(paths, "$KUBECONFIG");
  }
  Result<Config> in_cluster = InClusterConfig(environment);
  const bool in_pod = !environment.variable("KUBERNETES_SERVICE_HOST").empty();
  if (in_cluster || in_pod) return in_cluster;
  const std::string home = environment.variable("HOME");
  if (!home.empty()) {
    Result<Config> of_home = FromFiles({home + "/.kube/config"}, "the default");
    if (of_home || of_home.error().code != ErrorCode::kNotFound) return of_home;
  }
  return Fail(
      ErrorCode::kNotFound,
      "no way to a cluster: not in a pod, $KUBECONFIG is not set and ~/.kube/config does not exist; give a file "
      "with --kubeconfig");
}

}  // namespace trainyard::kube
