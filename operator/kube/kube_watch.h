// One watch request: a stream of lines, each an event. Thread-safety: as cluster::Watch.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "operator/cluster/cluster.h"
#include "operator/http/transport.h"
#include "operator/kube/line_splitter.h"

namespace trainyard::kube {

// What one line of a watch says. nullopt: an event of a type that we do not know, which is skipped. The object is
// handed on whatever it is: readers name what they cannot use. Errors: kGone and others of an ERROR event; kInternal
// for a line that is no event at all.
Result<std::optional<cluster::WatchEvent>> ParseEvent(const std::string& line, const std::string& what);

class KubeWatch : public cluster::Watch {
 public:
  // `what` opens messages: "watch pods". Without a byte for `idle` the watch counts as dead.
  KubeWatch(std::shared_ptr<http::Stream> stream, std::string what, Milliseconds idle, size_t max_event_bytes);
  ~KubeWatch() override { Stop(); }

  Result<std::optional<cluster::WatchEvent>> Next(Milliseconds timeout) override;
  void Stop() override { stream_->Stop(); }

 private:
  using Time = std::chrono::steady_clock::time_point;

  const std::shared_ptr<http::Stream> stream_;
  const std::string what_;
  const Milliseconds idle_;
  LineSplitter lines_;
  Time last_byte_;
  bool ended_ = false;
};

}  // namespace trainyard::kube
