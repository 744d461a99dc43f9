#include "operator/kube/pod_progress.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "trainer/contract/contract.h"

namespace trainyard::kube {

using nlohmann::json;
using std::chrono::steady_clock;
using Time = steady_clock::time_point;

namespace {

// An IPv6 address stands in brackets before a port.
std::string UrlOf(const std::string& ip, int port) {
  const std::string host = ip.find(':') == std::string::npos ? ip : "[" + ip + "]";
  return "http://" + host + ":" + std::to_string(port) + "/status";
}

Result<json> ParseStatus(const Result<http::Response>& response, const std::string& url) {
  if (!response) return Fail(response.error());
  if (response->status == 404) return Fail(ErrorCode::kNotFound, url + " has no status yet");
  if (response->status != 200) {
    return Fail(ErrorCode::kUnavailable, url + " answers HTTP " + std::to_string(response->status));
  }
  json status = json::parse(response->body, nullptr, false);
  if (!status.is_object()) return Fail(ErrorCode::kInvalidArgument, url + " answers no JSON object");
  return status;
}

// The status in a launcher's termination message.
std::optional<json> LastWords(const std::string& termination_message) {
  const json message = json::parse(termination_message, nullptr, false);
  if (!message.is_object()) return std::nullopt;
  const auto status = message.find("status");
  if (status == message.end() || !status->is_object()) return std::nullopt;
  return *status;
}

std::string PhaseOf(const json& status) {
  const auto phase = status.find("phase");
  return phase != status.end() && phase->is_string() ? phase->get<std::string>() : std::string();
}

}  // namespace

class PodProgress::Impl {
 public:
  Impl(std::unique_ptr<http::Transport> transport, PodProgressOptions options)
      : options_(std::move(options)), transport_(std::move(transport)) {
    for (int i = 0; i < std::max(1, options_.threads); ++i) threads_.emplace_back([this] { Run(); });
  }
  ~Impl() { Stop(); }

  void SetListener(std::function<void(const std::string&)> listener) {
    std::lock_guard lock(mutex_);
    listener_ = std::move(listener);
  }

  Result<json> Read(const api::PodSnapshot& pod) {
    if (pod.exit_code) return ReadEnded(pod);
    if (pod.ip.empty()) return Fail(ErrorCode::kNotFound, "pod " + pod.name + " has no address yet");
    const Time now = steady_clock::now();
    std::lock_guard lock(mutex_);
    Entry& entry = entries_[pod.uid];
    entry.ip = pod.ip;
    entry.job_uid = pod.job_uid;
    entry.read_at = now;
    if (!entry.busy && !entry.due) Schedule(pod.uid, entry, entry.asked_at ? *entry.asked_at + Interval(entry) : now);
    if (entries_.size() > options_.max_pods) ForgetOldest(pod.uid);
    if (entry.error && (!entry.status || now - entry.answered_at > options_.stale_after)) return Fail(*entry.error);
    if (!entry.status) return Fail(ErrorCode::kNotFound, "pod " + pod.name + " has not been asked yet");
    return *entry.status;
  }

  // One that has ended cannot be asked any more; its launcher has left what it would have said, or we know its last
  // answer.
  Result<json> ReadEnded(const api::PodSnapshot& pod) {
    auto last = LastWords(pod.termination_message);
    std::lock_guard lock(mutex_);
    const auto found = entries_.find(pod.uid);
    if (found != entries_.end()) Unschedule(found->first, found->second);
    if (last) return *std::move(last);
    if (found != entries_.end() && found->second.status) return *found->second.status;
    return Fail(ErrorCode::kNotFound, "pod " + pod.name + " has ended and left no status");
  }

  void Stop() {
    {
      std::lock_guard lock(mutex_);
      stopped_ = true;
      wake_.notify_all();
    }
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

 private:
  struct Entry {
    std::string ip;
    std::string job_uid;
    Time read_at{};
    std::optional<Time> asked_at;
    Time answered_at{};
    std::optional<Time> due;  // when it will be asked; it then stands in due_
    bool busy = false;        // being asked
    int failures = 0;         // since the last answer
    std::optional<json> status;
    std::optional<Error> error;  // of the last question
  };

  Milliseconds Interval(const Entry& entry) const {
    return entry.status ? options_.refresh_interval : options_.first_answer.Delay(entry.failures);
  }
  void Schedule(const std::string& uid, Entry& entry, Time when) {
    entry.due = when;
    due_.emplace(when, uid);
    wake_.notify_one();
  }
  void Unschedule(const std::string& uid, Entry& entry) {
    if (!entry.due) return;
    due_.erase({*entry.due, uid});
    entry.due.reset();
  }
  void ForgetOldest(const std::string& except) {
    auto oldest = entries_.end();
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
      if (it->first == except || it->second.busy) continue;
      if (oldest == entries_.end() || it->second.read_at < oldest->second.read_at) oldest = it;
    }
    if (oldest == entries_.end()) return;
    Unschedule(oldest->first, oldest->second);
    entries_.erase(oldest);
  }
  // Once in a while rather than by a timer per pod.
  void ForgetUnread(Time now) {
    if (now < next_sweep_) return;
    next_sweep_ = now + options_.forget_after / 4;
    for (auto it = entries_.begin(); it != entries_.end();) {
      Entry& entry = it->second;
      if (entry.busy || now - entry.read_at < options_.forget_after) {
        ++it;
        continue;
      }
      Unschedule(it->first, entry);
      it = entries_.erase(it);
    }
  }

  void Run() {
    std::unique_lock lock(mutex_);
    while (!stopped_) {
      if (due_.empty()) {
        wake_.wait(lock);
        continue;
      }
      const auto [when, uid] = *due_.begin();
      if (steady_clock::now() < when) {
        wake_.wait_until(lock, when);
        continue;
      }
      ForgetUnread(steady_clock::now());
      if (due_.empty() || due_.begin()->second != uid) continue;
      Ask(uid, lock);
    }
  }

  // Called with the lock, which is released while the pod is asked and the listener told.
  void Ask(const std::string& uid, std::unique_lock<std::mutex>& lock) {
    Entry& entry = entries_.at(uid);  // stays: nobody forgets a busy one
    Unschedule(uid, entry);
    entry.busy = true;
    http::Request request;
    request.url = UrlOf(entry.ip, options_.port != 0 ? options_.port : contract::kDefaultStatusPort);
    request.timeout = options_.timeout;
    lock.unlock();
    Result<json> answer = ParseStatus(transport_->Send(request), request.url);
    lock.lock();
    const Time now = steady_clock::now();
    entry.busy = false;
    entry.asked_at = now;
    if (!answer) {
      entry.error = answer.error();
      ++entry.failures;
      const bool wanted = now - entry.read_at < options_.forget_after;
      if (!entry.status && wanted) Schedule(uid, entry, now + Interval(entry));
      return;
    }
    const bool news = !entry.status || PhaseOf(*entry.status) != PhaseOf(*answer);
    entry.status = *std::move(answer);
    entry.answered_at = now;
    entry.error.reset();
    entry.failures = 0;
    if (!news || !listener_) return;
    const auto listener = listener_;
    const std::string job_uid = entry.job_uid;
    lock.unlock();
    listener(job_uid);
    lock.lock();
  }

  const PodProgressOptions options_;
  const std::unique_ptr<http::Transport> transport_;
  std::mutex mutex_;  // guards the rest but threads_
  std::condition_variable wake_;
  bool stopped_ = false;
  std::function<void(const std::string&)> listener_;
  std::map<std::string, Entry> entries_;        // by UID of the pod
  std::set<std::pair<Time, std::string>> due_;  // UIDs, the next first
  Time next_sweep_{};
  std::vector<std::thread> threads_;
};

PodProgress::PodProgress(PodProgressOptions options, std::unique_ptr<http::Transport> transport)
    : impl_(std::make_unique<Impl>(std::move(transport), std::move(options))) {}
PodProgress::~PodProgress() = default;

Result<json> PodProgress::Read(const api::PodSnapshot& rank0_pod) { return impl_->Read(rank0_pod); }
void PodProgress::SetListener(std::function<void(const std::string&)> listener) {
  impl_->SetListener(std::move(listener));
}
void PodProgress::Stop() { impl_->Stop(); }

}  // namespace trainyard::kube
