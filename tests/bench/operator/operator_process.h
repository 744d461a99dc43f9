// The operator under measurement: a process with the flags that the chart gives it, and what its /metrics and /proc
// say. Thread-safety: one thread.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "operator/base/error.h"

namespace trainyard::bench {

class OperatorProcess {
 public:
  // Returns when it leads. `log`: a file that takes its output.
  static Result<std::unique_ptr<OperatorProcess>> Start(const std::string& program, const std::string& kubeconfig,
                                                        const std::vector<std::string>& flags, const std::string& log);
  ~OperatorProcess();  // SIGTERM and waits
  OperatorProcess(const OperatorProcess&) = delete;
  OperatorProcess& operator=(const OperatorProcess&) = delete;

  // Sum of all series of a metric whose labels contain each of the texts, such as verb="create".
  double Metric(const std::string& name, const std::vector<std::string>& labels = {}) const;
  // Requests that change something, by "verb resource/subresource"; leases are left out.
  std::map<std::string, double> Writes() const;
  double CpuSeconds() const;
  double PeakRssMegabytes() const;  // 10^6 bytes, VmHWM
  pid_t pid() const { return pid_; }

 private:
  OperatorProcess() = default;
  std::string Scrape() const;
  pid_t pid_ = 0;
  int port_ = 0;
};

}  // namespace trainyard::bench
