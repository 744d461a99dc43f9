// trainyard-operator as a process with the flags of the chart and a kubeconfig of a service account.
// Thread-safety: one thread.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "operator/base/error.h"

namespace trainyard::cluster_test {

class ChartOperator {
 public:
  // `flags` as in the Deployment; only the addresses are replaced, by free ports of 127.0.0.1. Waits until it
  // reconciles.
  static Result<std::unique_ptr<ChartOperator>> Start(const std::string& kubeconfig, std::vector<std::string> flags);
  ~ChartOperator();  // ends it if it still runs, and removes its log
  ChartOperator(const ChartOperator&) = delete;
  ChartOperator& operator=(const ChartOperator&) = delete;

  // SIGTERM; the exit code, or 128 + signal.
  int Stop();
  std::string Log() const;
  std::string Metrics() const;  // as Prometheus would get them

 private:
  ChartOperator() = default;

  pid_t pid_ = 0;
  std::string log_;
};

}  // namespace trainyard::cluster_test
