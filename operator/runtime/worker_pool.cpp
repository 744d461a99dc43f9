#include "operator/runtime/worker_pool.h"

#include <exception>
#include <utility>

#include <spdlog/spdlog.h>

namespace trainyard::runtime {

WorkerPool::WorkerPool(WorkQueue& queue, int workers, Reconcile reconcile)
    : queue_(queue), reconcile_(std::move(reconcile)) {
  threads_.reserve(workers);
  for (int i = 0; i < workers; ++i) threads_.emplace_back([this] { Work(); });
}

WorkerPool::~WorkerPool() { Stop(); }

bool WorkerPool::Stop(Milliseconds timeout) {
  const bool in_time = queue_.Drain(timeout);
  if (!in_time) spdlog::warn("shutdown: workers are still busy after {} ms; waiting for them", timeout.count());
  threads_.clear();
  return in_time;
}

WorkerPool::Counters WorkerPool::counters() const { return {succeeded_, failed_, exceptions_}; }

void WorkerPool::Work() {
  while (std::optional<std::string> key = queue_.Get()) {
    RunOne(*key);
    queue_.Done(*key);
  }
}

void WorkerPool::RunOne(const std::string& key) {
  Result<std::optional<Milliseconds>> result = Fail(ErrorCode::kInternal, "");
  try {
    result = reconcile_(key);
  } catch (const std::exception& exception) {
    ++exceptions_;
    result = Fail(ErrorCode::kInternal, std::string("exception: ") + exception.what());
  } catch (...) {
    ++exceptions_;
    result = Fail(ErrorCode::kInternal, "exception of unknown type");
  }
  if (result) {
    ++succeeded_;
    queue_.Forget(key);
    if (*result) queue_.AddAfter(key, **result);
    return;
  }
  ++failed_;
  // A conflict is the everyday sign that the cache was behind.
  const auto level = result.error().code == ErrorCode::kConflict ? spdlog::level::debug : spdlog::level::warn;
  spdlog::log(level, "reconcile {}: {}: {}", key, ErrorCodeName(result.error().code), result.error().message);
  queue_.AddRateLimited(key);
}

}  // namespace trainyard::runtime
