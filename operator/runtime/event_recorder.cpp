#include "operator/runtime/event_recorder.h"

#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

#include "operator/base/ids.h"

namespace trainyard::runtime {

using cluster::Kind;
using nlohmann::json;

namespace {

constexpr size_t kMaxMessage = 1024;  // the API server's limit

// Cut at a border of characters, since half a character is no UTF-8.
std::string Cut(std::string text) {
  if (text.size() <= kMaxMessage) return text;
  size_t end = kMaxMessage;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  text.resize(end);
  return text;
}

}  // namespace

EventRecorder::EventRecorder(cluster::Cluster& cluster, const Clock& clock, EventRecorderOptions options)
    : cluster_(cluster), clock_(clock), options_(std::move(options)) {
  thread_ = std::jthread([this](std::stop_token stop) { Run(std::move(stop)); });
}

EventRecorder::~EventRecorder() { Stop(Milliseconds(0)); }

void EventRecorder::Tell(const char* result) const {
  if (options_.on_result) options_.on_result(result);
}

void EventRecorder::Record(const About& about, const std::string& type, const std::string& reason,
                           const std::string& message) {
  bool taken;
  {
    std::lock_guard lock(mutex_);
    taken = !closed_ && queue_.size() < options_.max_queued && Allowed(about.uid);
    if (taken) queue_.push_back({about, type, reason, Cut(message), clock_.Now()});
    changed_.notify_all();
  }
  if (taken) return;
  spdlog::debug("event {} of {} dropped", reason, cluster::ToString(about.key));
  Tell("dropped");
}

bool EventRecorder::Allowed(const std::string& uid) {
  const SteadyTime now = options_.now();
  const double refill_seconds = std::chrono::duration<double>(options_.refill).count();
  const auto tokens = [&](const Bucket& bucket) {
    const double seconds = std::chrono::duration<double>(now - bucket.refilled).count();
    return std::min(options_.burst, bucket.tokens + seconds / refill_seconds);
  };
  if (buckets_.size() >= options_.max_remembered && !buckets_.contains(uid)) {
    // Those that were quiet for long are as good as new; if all are noisy, begin again with all.
    std::erase_if(buckets_, [&](const auto& entry) { return tokens(entry.second) >= options_.burst; });
    if (buckets_.size() >= options_.max_remembered) buckets_.clear();
  }
  Bucket& bucket = buckets_.try_emplace(uid, Bucket{options_.burst, now}).first->second;
  bucket = {tokens(bucket), now};
  if (bucket.tokens < 1) return false;
  bucket.tokens -= 1;
  return true;
}

void EventRecorder::Run(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return !queue_.empty(); })) {
    if (stop.stop_requested()) return;
    const Entry entry = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    for (int left = options_.tries; left > 0; --left) {
      lock.unlock();
      const Status status = Write(entry);
      const bool later = !status && (status.error().code == ErrorCode::kUnavailable ||
                                     status.error().code == ErrorCode::kDeadlineExceeded);
      if (status) {
        Tell("written");
      } else if (!later || left == 1) {
        const auto level =
            status.error().code == ErrorCode::kFailedPrecondition ? spdlog::level::debug : spdlog::level::warn;
        spdlog::log(level, "event {} of {}: {}", entry.reason, cluster::ToString(entry.about.key),
                    status.error().message);
        Tell("failed");
      }
      lock.lock();
      if (!later || left == 1) break;
      changed_.wait_for(lock, stop, options_.retry_after, [&] { return stop.stop_requested(); });
      if (stop.stop_requested()) {
        Tell("dropped");
        break;
      }
    }
    busy_ = false;
    changed_.notify_all();
  }
}

bool EventRecorder::Flush(Milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [this] { return queue_.empty() && !busy_; });
}

void EventRecorder::Stop(Milliseconds flush_timeout) {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  if (!thread_.joinable()) return;
  Flush(flush_timeout);
  thread_.request_stop();
  thread_.join();
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < queue_.size(); ++i) Tell("dropped");
  queue_.clear();
}

Status EventRecorder::Write(const Entry& entry) {
  const std::string key = entry.about.uid + '\n' + entry.type + '\n' + entry.reason + '\n' + entry.message;
  const auto known = written_.find(key);
  if (known == written_.end()) return Create(entry, key);
  recent_.splice(recent_.begin(), recent_, known->second.used);
  const json patch = {{"count", known->second.count + 1}, {"lastTimestamp", FormatTime(entry.time)}};
  const Result<json> patched =
      cluster_.Patch(Kind::kEvent, {entry.about.key.ns, known->second.name}, cluster::PatchType::kMerge, patch, false);
  if (patched) {
    ++known->second.count;
    return {};
  }
  if (patched.error().code != ErrorCode::kNotFound) return Fail(patched.error());
  recent_.erase(known->second.used);  // the server has forgotten it: events live an hour
  written_.erase(known);
  return Create(entry, key);
}

Status EventRecorder::Create(const Entry& entry, const std::string& dedupe_key) {
  const About& about = entry.about;
  const std::string name = about.key.name + "." + NewUid();
  const std::string time = FormatTime(entry.time);
  const json object = {{"apiVersion", "v1"},
                       {"kind", "Event"},
                       {"metadata", {{"namespace", about.key.ns}, {"name", name}}},
                       {"involvedObject",
                        {{"apiVersion", about.api_version},
                         {"kind", about.kind},
                         {"namespace", about.key.ns},
                         {"name", about.key.name},
                         {"uid", about.uid}}},
                       {"type", entry.type},
                       {"reason", entry.reason},
                       {"message", entry.message},
                       {"source", {{"component", options_.component}}},
                       {"reportingComponent", options_.component},
                       {"firstTimestamp", time},
                       {"lastTimestamp", time},
                       {"count", 1}};
  const Result<json> created = cluster_.Create(Kind::kEvent, object);
  if (!created) return Fail(created.error());
  recent_.push_front(dedupe_key);
  written_[dedupe_key] = {name, 1, recent_.begin()};
  if (written_.size() > options_.max_remembered) {
    written_.erase(recent_.back());
    recent_.pop_back();
  }
  return {};
}

}  // namespace trainyard::runtime
