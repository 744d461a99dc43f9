// trainyard-operator as a process, with a kubeconfig of the test and its log in a file. Thread-safety: one thread.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "operator/base/clock.h"
#include "operator/base/error.h"

namespace trainyard::faults {

// One scrape: "name{label="x"}" -> value.
using Samples = std::map<std::string, double>;

class OperatorProcess {
 public:
  // `directory` must exist; files in it are named after `name`.
  OperatorProcess(std::filesystem::path directory, std::string name);
  ~OperatorProcess();  // kills it if it still runs
  OperatorProcess(const OperatorProcess&) = delete;
  OperatorProcess& operator=(const OperatorProcess&) = delete;

  // Writes the kubeconfig (a bearer token file if given) and starts the program with `flags` besides those for
  // addresses.
  Status Start(const std::string& server, const std::string& token_file, const std::vector<std::string>& flags);
  bool Running();
  // SIGTERM. The exit code, or 128 + signal; nothing when it is still there after `timeout`.
  std::optional<int> Terminate(Milliseconds timeout);
  // SIGKILL, from any thread: it does nothing more when this returns.
  void Kill() const;

  std::string Log() const;
  // Lines of the log that contain all of `words`.
  std::vector<std::string> LogLines(const std::vector<std::string>& words) const;

  struct Answer {
    int status = 0;  // 0: nobody answers
    std::string body;
  };
  Answer Probe(const std::string& path) const;  // /healthz, /readyz
  Samples Metrics() const;
  // Sum over all series of `name` whose labels contain each of `labels` (as text: resource="pods"); nothing when there
  // is none.
  std::optional<double> Metric(const std::string& name, const std::vector<std::string>& labels = {}) const;

 private:
  std::optional<int> Reap(Milliseconds timeout);

  const std::filesystem::path directory_;
  const std::string name_;
  int metrics_port_ = 0;
  int probe_port_ = 0;
  pid_t pid_ = 0;
};

}  // namespace trainyard::faults
