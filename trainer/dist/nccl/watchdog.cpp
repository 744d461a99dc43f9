#include "trainer/dist/nccl/watchdog.h"

#include <algorithm>
#include <utility>

#include <c10/cuda/CUDAFunctions.h>

namespace trainyard::dist::nccl {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// How often the GPU is asked whether the oldest call is done. Nobody waits for the answer but Barrier: calls order
// streams among themselves.
constexpr milliseconds kLook{2};
// For the last calls of a group that is being destroyed.
constexpr milliseconds kPatience{5000};

}  // namespace

void CheckCuda(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  (void)cudaGetLastError();  // else the next call reports it again
  TORCH_CHECK(false, "CUDA: ", what, ": ", cudaGetErrorString(code));
}

StreamMark::StreamMark(cudaStream_t stream) {
  CheckCuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "event");
  CheckCuda(cudaEventRecord(event_, stream), "event");
}
StreamMark::~StreamMark() { (void)cudaEventDestroy(event_); }
bool StreamMark::Past() const {
  const cudaError_t state = cudaEventQuery(event_);
  if (state != cudaErrorNotReady) CheckCuda(state, "a collective");
  return state == cudaSuccess;
}
void StreamMark::Order(cudaStream_t later) const { CheckCuda(cudaStreamWaitEvent(later, event_, 0), "event"); }

Watchdog::Watchdog(Communicator& communicator, int device, std::string who, std::shared_ptr<Monitor> monitor)
    : communicator_(communicator), device_(device), who_(std::move(who)), monitor_(std::move(monitor)) {
  thread_ = std::thread([this] { Run(); });
}

Watchdog::~Watchdog() {
  bool idle = false;
  {
    // What is queued may still end well: nobody has to have waited for it.
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatience, [&] { return failed_ || flights_.empty(); });
    stopping_ = true;
    idle = flights_.empty();
    changed_.notify_all();
  }
  if (!idle) {
    Fail(CommError::Kind::kAborted, "the group was destroyed with calls outstanding", who_ + " has left the group");
  }
  thread_.join();
}

void Watchdog::Add(std::shared_ptr<Flight> flight) {
  std::lock_guard lock(mutex_);
  flights_.push_back(std::move(flight));
  changed_.notify_all();
}

void Watchdog::Release(Flight& flight) {
  std::vector<at::Tensor> tensors;  // goes after the lock
  std::lock_guard lock(mutex_);
  tensors.swap(flight.tensors);
}

void Watchdog::Await(const Flight& flight) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return flight.done || failed_; });
  if (!flight.done) Throw(flight.what);
}

void Watchdog::CheckAlive(const std::string& what) {
  std::lock_guard lock(mutex_);
  if (failed_) Throw(what);
}

void Watchdog::Throw(const std::string& what) const {
  throw CommError(kind_, failure_.starts_with(what) ? failure_ : what + " failed: " + failure_);
}

void Watchdog::Fail(CommError::Kind kind, const std::string& message, const std::string& reason) {
  if (monitor_) monitor_->Farewell(reason, true);
  {
    std::lock_guard lock(mutex_);
    if (failed_) return;
    failed_ = true;
    kind_ = kind;
    failure_ = message;
    changed_.notify_all();
  }
  communicator_.Abort();
}

void Watchdog::FailCall(const Flight& flight, bool late, const std::string& error) {
  std::string blame = monitor_ ? monitor_->Verdict(flight.context.id, milliseconds(300)) : "";
  if (blame.empty()) blame = late ? "a peer is silent or makes another call" : error;
  const std::string allowed = std::to_string(flight.context.deadline.count());
  Fail(late ? CommError::Kind::kDeadline : CommError::Kind::kPeerLost,
       flight.what + (late ? " did not complete within its deadline of " + allowed + " ms: " : " failed: ") + blame,
       blame);
}

void Watchdog::Run() {
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(device_));
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || failed_ || !flights_.empty(); });
    if (failed_ || flights_.empty()) break;
    const std::shared_ptr<Flight> oldest = flights_.front();
    lock.unlock();
    bool past = false;
    std::string error;
    try {
      past = oldest->end->Past();
      if (!past) error = communicator_.AsyncError();
    } catch (const std::exception& e) {
      error = e.what();
    }
    const bool late = Clock::now() - oldest->start >= oldest->context.deadline;
    if (past) {
      if (monitor_) monitor_->log().End(oldest->context.id);
    } else if (!error.empty() || late) {
      FailCall(*oldest, error.empty(), error);
    }
    lock.lock();
    if (!past) {
      if (!failed_) changed_.wait_for(lock, kLook, [&] { return failed_; });
      continue;
    }
    oldest->done = true;
    std::vector<at::Tensor> tensors = std::move(oldest->tensors);
    flights_.pop_front();
    changed_.notify_all();
    lock.unlock();
    tensors.clear();  // outside of the lock, and only now that the GPU has done with them
    lock.lock();
  }
  // After a failure the communicator is aborted: what was queued ends at once, and then its tensors may go.
  std::deque<std::shared_ptr<Flight>> left = std::move(flights_);
  lock.unlock();
  for (const auto& flight : left) {
    for (int i = 0; i < 1000; ++i) {
      try {
        if (flight->end->Past()) break;
      } catch (const std::exception&) {
        break;  // the GPU itself has failed: nothing runs there any more
      }
      std::this_thread::sleep_for(kLook);
    }
  }
}

}  // namespace trainyard::dist::nccl
