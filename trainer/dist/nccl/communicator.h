// One NCCL communicator, made and used without ever blocking: NCCL answers "in progress", and whoever wants to go on
// polls it against a deadline. NCCL takes one call at a time, so all of them go through here.
// Thread-safety: all methods may be called from any thread.
#pragma once

#include <nccl.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

namespace trainyard::dist::nccl {

using SteadyTime = std::chrono::steady_clock::time_point;

// What NCCL says of a failed call.
class NcclError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Communicator {
 public:
  // Blocks until all ranks have come. Throws NcclError.
  Communicator(const ncclUniqueId& id, int rank, int size, SteadyTime deadline);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Makes `calls(comm)` one group: it issues NCCL's calls for a stream. Throws NcclError; then the communicator is good
  // for nothing but Abort().
  template <typename Calls>
  void Group(SteadyTime deadline, const Calls& calls) {
    std::lock_guard lock(mutex_);
    CheckAlive();
    Check(ncclGroupStart(), "ncclGroupStart");
    calls(comm_);
    Finish(ncclGroupEnd(), "ncclGroupEnd", deadline);
  }

  // Makes the part of a group that gives the same color; a negative color joins none and gets null. Collective over the
  // ranks of this communicator. Throws NcclError.
  std::unique_ptr<Communicator> Split(int color, int key, SteadyTime deadline);

  // "" while all is well, else what happened to the connections.
  std::string AsyncError();
  // Ends what is under way on the GPU, and a call that waits for its peers. For good.
  void Abort();

  // Throws NcclError for anything but success; within a group `ncclInProgress` is success.
  static void Check(ncclResult_t result, const char* what);

 private:
  explicit Communicator(ncclComm_t comm) : comm_(comm) {}
  void CheckAlive() const;
  void Finish(ncclResult_t result, const char* what, SteadyTime deadline);

  std::atomic<bool> aborting_{false};  // ends a wait that holds the mutex
  std::mutex mutex_;                   // guards the communicator
  ncclComm_t comm_ = nullptr;          // null: aborted
};

}  // namespace trainyard::dist::nccl
