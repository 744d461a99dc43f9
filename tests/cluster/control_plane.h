// A real Kubernetes API server (with controller manager and scheduler) under test. ctest starts one for all tests that
// are declared with trainyard_cluster_test and names it in TRAINYARD_TEST_KUBECONFIG; a program started by hand starts
// its own through tests/cluster/up.sh and takes it down at exit. Tests keep apart by namespaces of their own.
//
//   TEST(X, Y) {
//     TRAINYARD_NEEDS_CLUSTER(plane);              // skips with the reason where none can run
//     const std::string ns = plane->FreshNamespace();
//     plane->Kubectl({"-n", ns, "apply", "-f", "-"}, manifest);
//
// Thread-safety: all members may be called from any thread.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "operator/base/error.h"

namespace trainyard::cluster_test {

// What a program that has ended left: its exit code (128 + signal when killed) and what it wrote.
struct Ran {
  int code = -1;
  std::string out;
  std::string err;
};

// Runs a program to its end with `input` on its standard input. `argv[0]` is a path or found on PATH; `environment`
// holds further KEY=VALUE. Exit code 127 when it cannot be started.
Ran RunProgram(const std::vector<std::string>& argv, const std::string& input = "",
               const std::vector<std::string>& environment = {});

class ControlPlane {
 public:
  // The control plane of this process, started at the first call. kFailedPrecondition: this machine cannot run one, and
  // the message says why. Never null otherwise; lives until the process ends.
  static Result<ControlPlane*> Shared();

  // A control plane of the caller's own, for tests that restart or break it; `flags` go to up.sh.
  static Result<std::unique_ptr<ControlPlane>> Start(const std::vector<std::string>& flags = {},
                                                     const std::vector<std::string>& environment = {});
  ~ControlPlane();
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;

  const std::string& kubeconfig() const { return kubeconfig_; }  // a file; the user may do everything
  const std::string& server() const { return server_; }          // https://127.0.0.1:PORT
  const std::string& etcd() const { return etcd_; }              // http://127.0.0.1:PORT; empty: not ours to touch
  const std::string& kubectl() const { return kubectl_; }        // the program
  const std::string& helm() const { return helm_; }              // the program; may not be installed
  const std::string& dir() const { return dir_; }                // logs/, pki/, pids/ of the run

  // A new namespace whose default service account exists, so that pods can be created in it. Deleted (without waiting)
  // when this object goes. Throws std::runtime_error when the cluster refuses: nothing in the test can go on then.
  std::string FreshNamespace(const std::string& prefix = "test");

  // kubectl with this cluster's kubeconfig.
  Ran Kubectl(std::vector<std::string> arguments, const std::string& input = "") const;
  // The same, but a failure fails the test (and answers ""); returns what it wrote to standard output.
  std::string MustKubectl(std::vector<std::string> arguments, const std::string& input = "") const;

  // A kubeconfig file of a service account, made with a fresh token: for tests of RBAC. Empty on failure.
  std::string ServiceAccountKubeconfig(const std::string& ns, const std::string& account) const;

 private:
  ControlPlane() = default;
  static Result<std::unique_ptr<ControlPlane>> FromDir(const std::string& dir, bool owned);

  std::string dir_, kubeconfig_, server_, etcd_, kubectl_, helm_;
  bool owned_ = false;  // started by this object, which takes it down
  std::atomic<int> names_{0};
  std::mutex mutex_;  // guards namespaces_
  std::vector<std::string> namespaces_;
};

// True when a test that cannot reach a cluster has to fail instead of being skipped.
bool ClusterRequired();

}  // namespace trainyard::cluster_test

#define TRAINYARD_NEEDS_CLUSTER(name)                                           \
  const auto name##_result = ::trainyard::cluster_test::ControlPlane::Shared(); \
  if (!name##_result && !::trainyard::cluster_test::ClusterRequired()) {        \
    GTEST_SKIP() << name##_result.error().message;                              \
  }                                                                             \
  ASSERT_TRUE(name##_result) << name##_result.error().message;                  \
  ::trainyard::cluster_test::ControlPlane* const name = *name##_result
