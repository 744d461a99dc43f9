// What the probes of Kubernetes ask: /healthz (is this process worth keeping?), /readyz (can it do its work now, or
// take over at once?), and /metrics. Leading is not part of being ready, or standby replicas never would be.
// Thread-safety: all members from any thread. A check must be quick: it is asked on each probe.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "operator/base/error.h"
#include "operator/http/server.h"
#include "operator/runtime/metrics.h"

namespace trainyard::runtime {

class Health {
 public:
  using Check = std::function<Status()>;
  enum class Kind { kLive, kReady };

  // Adds a check, or replaces the one of that name.
  void Set(Kind kind, const std::string& name, Check check);
  // Waits for a call of that check that is under way.
  void Remove(Kind kind, const std::string& name);
  // From now on /readyz says that we are going, whatever the checks say.
  void ShutDown();
  // One line per failed check, "name: why"; empty: all hold.
  std::string Problems(Kind kind) const;

 private:
  mutable std::mutex mutex_;  // guards everything below; held during checks
  std::map<std::string, Check> live_, ready_;
  bool shutting_down_ = false;
};

// GET /healthz and /readyz: 200 "ok", or 503 with the problems.
http::Handler ProbeHandler(const Health& health);
// GET /metrics.
http::Handler MetricsHandler(const Metrics& metrics);

// Splits what --metrics-bind-address and its like take: ":8080", "127.0.0.1:0", "[::1]:8080". Host "" means every
// interface; "0" alone is off (port -1). Error: kInvalidArgument.
struct BindAddress {
  std::string host;
  int port = -1;
  bool Off() const { return port < 0; }
};
Result<BindAddress> ParseBindAddress(const std::string& text);

}  // namespace trainyard::runtime
