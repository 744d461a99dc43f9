#include "trainer/dist/nccl/communicator.h"

#include <thread>
#include <utility>

namespace trainyard::dist::nccl {
namespace {

using Clock = std::chrono::steady_clock;

ncclConfig_t Config() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

}  // namespace

void Communicator::Check(ncclResult_t result, const char* what) {
  if (result != ncclSuccess && result != ncclInProgress) {
    const char* more = ncclGetLastError(nullptr);
    throw NcclError(std::string(what) + ": " + ncclGetErrorString(result) +
                    (more != nullptr && *more != '\0' ? std::string(" (") + more + ")" : ""));
  }
}

Communicator::Communicator(const ncclUniqueId& id, int rank, int size, SteadyTime deadline) {
  ncclConfig_t config = Config();
  const ncclResult_t begun = ncclCommInitRankConfig(&comm_, size, id, rank, &config);
  try {
    Finish(begun, "ncclCommInitRankConfig", deadline);
  } catch (...) {
    Abort();
    throw;
  }
}

Communicator::~Communicator() {
  // Work that is still queued would wait for peers that may be gone: ending is the owner's business, see NcclComm.
  Abort();
}

void Communicator::CheckAlive() const {
  if (comm_ == nullptr) throw NcclError("the communicator was aborted");
}

void Communicator::Finish(ncclResult_t result, const char* what, SteadyTime deadline) {
  Check(result, what);
  for (auto pause = std::chrono::microseconds(1); result == ncclInProgress;) {
    if (aborting_.load()) throw NcclError(std::string(what) + " was aborted");
    if (Clock::now() >= deadline) throw NcclError(std::string(what) + " did not complete within its deadline");
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(1000));
    Check(ncclCommGetAsyncError(comm_, &result), what);
    Check(result, what);
  }
}

std::unique_ptr<Communicator> Communicator::Split(int color, int key, SteadyTime deadline) {
  std::lock_guard lock(mutex_);
  CheckAlive();
  ncclConfig_t config = Config();
  ncclComm_t part = nullptr;
  Finish(ncclCommSplit(comm_, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, &part, &config), "ncclCommSplit", deadline);
  if (part == nullptr) return nullptr;
  std::unique_ptr<Communicator> communicator(new Communicator(part));
  communicator->Finish(ncclInProgress, "ncclCommSplit", deadline);
  return communicator;
}

std::string Communicator::AsyncError() {
  std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return "the communicator was aborted";
  ncclResult_t state = ncclSuccess;
  try {
    Check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
    Check(state, "NCCL");
  } catch (const NcclError& e) {
    return e.what();
  }
  return "";
}

void Communicator::Abort() {
  aborting_ = true;
  std::lock_guard lock(mutex_);
  if (comm_ != nullptr) ncclCommAbort(std::exchange(comm_, nullptr));
}

}  // namespace trainyard::dist::nccl
