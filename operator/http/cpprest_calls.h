// The calls of one transport that have not ended, so that its end can wait for them: a client of cpprestsdk that dies
// after main() returned takes the process with it. Private to the room. Thread-safety: all members from any thread.
#pragma once

#include <cpprest/http_client.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace trainyard::http {

class CpprestCalls : public std::enable_shared_from_this<CpprestCalls> {
 public:
  // One call: holds its client alive, and counts until the last task that owns it has gone.
  struct Call {
    std::shared_ptr<CpprestCalls> calls;
    std::shared_ptr<web::http::client::http_client> client;
    pplx::cancellation_token_source cancel;
    uint64_t id = 0;

    ~Call() {
      client.reset();
      calls->Done(id);
    }
  };

  std::shared_ptr<Call> Begin(std::shared_ptr<web::http::client::http_client> client) {
    auto call = std::make_shared<Call>();
    call->calls = shared_from_this();
    call->client = std::move(client);
    std::lock_guard lock(mutex_);
    call->id = ++last_;
    running_.emplace(call->id, call->cancel);
    return call;
  }

  // Cancels all and waits until they have ended, `patience` at most.
  void CancelAndWait(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    const auto running = running_;
    lock.unlock();
    for (const auto& [id, cancel] : running) cancel.cancel();
    lock.lock();
    none_.wait_for(lock, patience, [this] { return running_.empty(); });
  }

 private:
  void Done(uint64_t id) {
    std::lock_guard lock(mutex_);
    running_.erase(id);
    none_.notify_all();
  }

  std::mutex mutex_;  // guards the rest
  std::condition_variable none_;
  uint64_t last_ = 0;
  std::map<uint64_t, pplx::cancellation_token_source> running_;
};

}  // namespace trainyard::http
