// The calls of one communicator that are queued on its stream: keeps their tensors until the GPU has done with them,
// and ends the group when a call misses its deadline or a connection breaks. One thread, asleep while nothing is
// queued. Thread-safety: all methods may be called from any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ATen.h>

#include "trainer/dist/comm.h"
#include "trainer/dist/monitor.h"
#include "trainer/dist/nccl/communicator.h"

namespace trainyard::dist::nccl {

void CheckCuda(cudaError_t code, const char* what);

// A CUDA event, recorded on a stream. Not timed.
class StreamMark {
 public:
  explicit StreamMark(cudaStream_t stream);
  ~StreamMark();
  StreamMark(const StreamMark&) = delete;
  StreamMark& operator=(const StreamMark&) = delete;
  bool Past() const;                     // throws c10::Error when the GPU has failed
  void Order(cudaStream_t later) const;  // work queued on `later` from now on comes after the mark

 private:
  cudaEvent_t event_ = nullptr;
};

struct Flight {
  std::string what;  // Describe()
  CallContext context;
  SteadyTime start;
  std::unique_ptr<StreamMark> end;
  std::vector<at::Tensor> tensors;
  bool done = false;
};

class Watchdog {
 public:
  // `who`: "rank 2", for messages to the peers.
  Watchdog(Communicator& communicator, int device, std::string who, std::shared_ptr<Monitor> monitor);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void Add(std::shared_ptr<Flight> flight);
  // The tensors of a call whose end is ordered before all that their owner's stream does from now on: they need not be
  // kept until the GPU gets there, which would hold memory for longer than LibTorch's allocator has to.
  void Release(Flight& flight);
  // Blocks until the call is done on the GPU. Throws CommError.
  void Await(const Flight& flight);
  // Throws CommError when the group has failed; `what` is the call that finds out.
  void CheckAlive(const std::string& what);
  // The first failure counts: peers are told `reason`, what is under way on the GPU ends.
  void Fail(CommError::Kind kind, const std::string& message, const std::string& reason);

 private:
  void Run();
  void FailCall(const Flight& flight, bool late, const std::string& error);
  [[noreturn]] void Throw(const std::string& what) const;

  Communicator& communicator_;
  const int device_;
  const std::string who_;
  const std::shared_ptr<Monitor> monitor_;  // null: nobody looks after the calls
  std::mutex mutex_;                        // guards everything below
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Flight>> flights_;
  bool stopping_ = false;
  bool failed_ = false;
  CommError::Kind kind_ = CommError::Kind::kPeerLost;
  std::string failure_;
  std::thread thread_;
};

}  // namespace trainyard::dist::nccl
