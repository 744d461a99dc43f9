// How to reach the API server: a kubeconfig file, or what a pod finds in its own file system.
// Thread-safety: plain values and free functions.
#pragma once

#include <functional>
#include <string>

#include "operator/base/error.h"
#include "operator/http/transport.h"

namespace trainyard::kube {

struct Config {
  std::string server;  // "https://10.0.0.1:6443", with a path where a proxy wants one; no '/' at its end
  http::TlsOptions tls;
  std::string token;       // bearer token; token_file wins
  std::string token_file;  // read again while we run
  std::string ns;          // namespace of the context or of our own pod; "default" when neither says
  std::string source;      // where this was read, for messages
};

// What the machine tells; replaced in tests.
struct ConfigEnvironment {
  std::function<std::string(const std::string& name)> variable;  // of the environment; "" when it is not set
  std::string service_account_dir = "/var/run/secrets/kubernetes.io/serviceaccount";
};
ConfigEnvironment ProcessEnvironment();

// `path`, when it is not empty. Otherwise $KUBECONFIG (a list of files, the first to say something wins), the service
// account of the pod we run in, ~/.kube/config. Errors: kNotFound, kInvalidArgument; each names the file and what to
// do.
Result<Config> LoadConfig(const std::string& path, const ConfigEnvironment& environment = ProcessEnvironment());

// The pod's own service account. Error: kFailedPrecondition where there is none.
Result<Config> InClusterConfig(const ConfigEnvironment& environment = ProcessEnvironment());

}  // namespace trainyard::kube
