// Sends requests to one API server: token, throttle, deadline, Retry-After, what may be tried again, and who is told.
// Knows nothing of objects. Thread-safety: all members from any thread.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "operator/cluster/cluster.h"
#include "operator/http/transport.h"
#include "operator/kube/kube_cluster.h"
#include "operator/kube/request_url.h"
#include "operator/kube/throttle.h"
#include "operator/kube/token.h"

namespace trainyard::kube {

// One request, as it is to be sent and as it is told of.
struct Call {
  std::string verb;  // as RBAC names it
  std::string method = "GET";
  cluster::Kind kind = cluster::Kind::kPod;
  std::string ns;
  std::string name;  // empty: the collection
  std::string subresource;
  Query query;
  std::string body;
  std::string content_type = "application/json";
  bool json_patch = false;

  // "create pods ns/name/status", for messages.
  std::string What() const;
};

class Client {
 public:
  Client(const Config& config, const KubeOptions& options);
  // The body of a 2xx answer. Other answers and failures are errors, see ErrorOfAnswer().
  Result<std::string> Send(const Call& call);
  // The stream of a 200 answer, and as Send otherwise.
  Result<std::shared_ptr<http::Stream>> Open(const Call& call);
  // GET of a path that belongs to no kind: "/version".
  Result<std::string> GetPath(const std::string& path);
  // See KubeCluster::Stop().
  void Stop();

 private:
  using Time = std::chrono::steady_clock::time_point;
  // An answer of either kind; `stream` is set for a 200 of a watch only.
  struct Answer {
    int status = 0;
    http::Headers headers;
    std::string body;
    std::shared_ptr<http::Stream> stream;
  };
  Result<Answer> Run(const Call& call, const std::string& path, bool streams);
  Result<Answer> Once(const Call& call, const http::Request& request, bool streams, double throttled);
  static Result<Answer> Streamed(http::Transport& transport, const http::Request& request);
  http::Transport& TransportOf(const Call& call, bool streams);
  bool Sleep(Time until);  // false: stopped
  // Waits until the server wants calls of this kind again; fails at once when that is beyond `deadline`.
  Status AwaitQuiet(const Call& call, Time deadline);
  void KeepQuiet(const Call& call, std::chrono::seconds pause);

  const Config config_;
  const KubeOptions options_;
  Token token_;
  Throttle throttle_;
  const std::unique_ptr<http::Transport> api_;
  const std::unique_ptr<http::Transport> watch_;
  const std::unique_ptr<http::Transport> lease_;
  std::mutex mutex_;  // guards the rest
  std::condition_variable wake_;
  bool stopped_ = false;
  std::vector<std::weak_ptr<http::Stream>> streams_;
  std::map<std::pair<std::string, cluster::Kind>, Time> quiet_;  // by verb and kind: what a Retry-After has asked for
};

}  // namespace trainyard::kube
