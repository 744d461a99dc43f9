#include "operator/kube/kube_watch.h"

#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

#include "operator/kube/api_error.h"
#include "operator/kube/object_json.h"

namespace trainyard::kube {

using cluster::WatchEvent;
using nlohmann::json;
using std::chrono::steady_clock;

Result<std::optional<WatchEvent>> ParseEvent(const std::string& line, const std::string& what) {
  json event = json::parse(line, nullptr, false);
  const auto unreadable = [&] {
    return Fail(ErrorCode::kInternal, what + ": a line of the stream is no event: " + line.substr(0, 120));
  };
  if (!event.is_object()) return unreadable();
  const auto type = event.find("type");
  const auto object = event.find("object");
  if (type == event.end() || !type->is_string() || object == event.end()) return unreadable();
  const std::string& name = type->get_ref<const std::string&>();
  if (name == "ERROR") return Fail(ErrorOfEvent(*object, what));
  WatchEvent parsed;
  if (name == "ADDED") {
    parsed.type = WatchEvent::Type::kAdded;
  } else if (name == "MODIFIED") {
    parsed.type = WatchEvent::Type::kModified;
  } else if (name == "DELETED") {
    parsed.type = WatchEvent::Type::kDeleted;
  } else if (name == "BOOKMARK") {
    parsed.type = WatchEvent::Type::kBookmark;
  } else {
    spdlog::warn("{}: an event of type \"{}\" is skipped", what, name);
    return std::nullopt;
  }
  StripManagedFields(*object);
  parsed.object = std::make_shared<const json>(std::move(*object));
  return parsed;
}

KubeWatch::KubeWatch(std::shared_ptr<http::Stream> stream, std::string what, Milliseconds idle, size_t max_event_bytes)
    : stream_(std::move(stream)),
      what_(std::move(what)),
      idle_(idle),
      lines_(max_event_bytes),
      last_byte_(steady_clock::now()) {}

Result<std::optional<WatchEvent>> KubeWatch::Next(Milliseconds timeout) {
  const Time deadline = steady_clock::now() + timeout;
  while (true) {
    while (std::optional<std::string> line = lines_.Next()) {
      auto event = ParseEvent(*line, what_);
      if (!event || event->has_value()) return event;
    }
    if (ended_) {
      return Fail(ErrorCode::kUnavailable, what_ + (lines_.Unfinished() ? ": the stream ended within an event"
                                                                        : ": the server has ended the stream"));
    }
    const Time now = steady_clock::now();
    const Time dead = last_byte_ + idle_;
    if (now >= dead) {
      stream_->Stop();
      return Fail(ErrorCode::kDeadlineExceeded,
                  what_ + ": nothing came for " + std::to_string(idle_.count() / 1000) + " s, given up");
    }
    Result<http::Chunk> chunk =
        stream_->Read(std::max(Milliseconds(0), std::chrono::ceil<Milliseconds>(std::min(deadline, dead) - now)));
    if (!chunk) return Fail(chunk.error().Wrap(what_));
    ended_ = chunk->end;
    if (!chunk->bytes.empty()) {
      last_byte_ = steady_clock::now();
      if (Status status = lines_.Add(chunk->bytes); !status) {
        return Fail(ErrorCode::kInternal, what_ + ": " + status.error().message);
      }
    } else if (!ended_ && steady_clock::now() >= deadline) {
      return std::nullopt;
    }
  }
}

}  // namespace trainyard::kube
