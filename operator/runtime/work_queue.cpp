#include "operator/runtime/work_queue.h"

#include <utility>

namespace trainyard::runtime {

WorkQueue::WorkQueue(WorkQueueOptions options) : options_(std::move(options)), limiter_(options_.rate_limit) {}

void WorkQueue::Add(const std::string& key) {
  std::lock_guard lock(mutex_);
  AddLocked(key);
}

void WorkQueue::AddLocked(const std::string& key) {
  if (shut_down_ || !dirty_.insert(key).second) return;
  if (options_.on_add) options_.on_add();
  if (processing_.contains(key)) return;  // Done() queues it
  PushLocked(key);
  changed_.notify_all();
}

void WorkQueue::PushLocked(const std::string& key) {
  queue_.push_back({key, options_.on_wait ? options_.now() : SteadyTime{}});
}

void WorkQueue::AddAfter(const std::string& key, Milliseconds delay) {
  std::lock_guard lock(mutex_);
  AddAfterLocked(key, delay);
}

void WorkQueue::AddAfterLocked(const std::string& key, Milliseconds delay) {
  if (shut_down_) return;
  if (delay <= Milliseconds::zero()) return AddLocked(key);
  const SteadyTime when = options_.now() + delay;
  const auto [entry, inserted] = waiting_.try_emplace(key, when);
  if (!inserted) {
    if (entry->second <= when) return;
    entry->second = when;
  }
  heap_.push({when, order_++, key});
  changed_.notify_all();
}

void WorkQueue::AddRateLimited(const std::string& key) {
  std::lock_guard lock(mutex_);
  if (options_.on_retry) options_.on_retry();
  AddAfterLocked(key, limiter_.When(key, options_.now()));
}

void WorkQueue::Forget(const std::string& key) {
  std::lock_guard lock(mutex_);
  limiter_.Forget(key);
}

int WorkQueue::Failures(const std::string& key) const {
  std::lock_guard lock(mutex_);
  return limiter_.Failures(key);
}

void WorkQueue::MoveReadyLocked() {
  const SteadyTime now = options_.now();
  while (!heap_.empty()) {
    const Delayed& top = heap_.top();
    const auto valid = waiting_.find(top.key);
    const bool stale = valid == waiting_.end() || valid->second != top.when;
    if (!stale && top.when > now) return;
    const std::string key = top.key;
    heap_.pop();
    if (stale) continue;
    waiting_.erase(valid);
    AddLocked(key);
  }
}

std::optional<std::string> WorkQueue::Get() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (!shut_down_) MoveReadyLocked();
    if (!queue_.empty()) break;
    if (shut_down_) return std::nullopt;
    if (heap_.empty()) {
      changed_.wait(lock);
    } else {
      changed_.wait_for(lock, heap_.top().when - options_.now());
    }
  }
  Queued next = std::move(queue_.front());
  queue_.pop_front();
  if (options_.on_wait) options_.on_wait(std::chrono::duration<double>(options_.now() - next.since).count());
  std::string key = std::move(next.key);
  dirty_.erase(key);
  processing_.insert(key);
  return key;
}

void WorkQueue::Done(const std::string& key) {
  std::lock_guard lock(mutex_);
  processing_.erase(key);
  if (dirty_.contains(key)) PushLocked(key);
  changed_.notify_all();
}

void WorkQueue::ShutDown() {
  std::lock_guard lock(mutex_);
  shut_down_ = true;
  heap_ = {};
  waiting_.clear();
  changed_.notify_all();
}

bool WorkQueue::Drain(Milliseconds timeout) {
  ShutDown();
  std::unique_lock lock(mutex_);
  queue_.clear();
  dirty_.clear();
  return changed_.wait_for(lock, timeout, [this] { return processing_.empty(); });
}

void WorkQueue::Wake() {
  std::lock_guard lock(mutex_);
  MoveReadyLocked();
  changed_.notify_all();
}

size_t WorkQueue::Size() const {
  std::lock_guard lock(mutex_);
  return queue_.size();
}

size_t WorkQueue::Waiting() const {
  std::lock_guard lock(mutex_);
  return waiting_.size();
}

bool WorkQueue::Idle() const {
  std::lock_guard lock(mutex_);
  return queue_.empty() && processing_.empty() && dirty_.empty();
}

}  // namespace trainyard::runtime
