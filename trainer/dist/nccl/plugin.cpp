// The plug-in's door.
#include "trainer/dist/nccl_plugin.h"

#include <cstring>

#include "trainer/dist/nccl/nccl_comm.h"

namespace trainyard::dist {
namespace {

// The id of the communicator goes from rank 0 to all over the host's group.
ncclUniqueId ShareId(Comm& host, std::chrono::milliseconds timeout) {
  ncclUniqueId id{};
  if (host.rank() == 0) nccl::Communicator::Check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  const at::Tensor words = at::zeros({static_cast<int64_t>(sizeof id) / 8}, at::kLong);
  std::memcpy(words.mutable_data_ptr(), &id, sizeof id);
  host.Broadcast(words, 0, {.deadline = timeout, .label = "id of the NCCL communicator"})->Wait();
  std::memcpy(&id, words.const_data_ptr(), sizeof id);
  return id;
}

std::unique_ptr<Comm> Connect(Comm& host, int device, std::chrono::milliseconds timeout, std::string& error) {
  try {
    int count = 0;
    nccl::CheckCuda(cudaGetDeviceCount(&count), "no usable GPU");
    nccl::CheckCuda(cudaSetDevice(device), "GPU of this rank");
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    const ncclUniqueId id = ShareId(host, timeout);
    auto communicator = std::make_unique<nccl::Communicator>(id, host.rank(), host.size(), deadline);
    std::vector<int> ranks;
    for (int r = 0; r < host.size(); ++r) ranks.push_back(r);
    auto comm = std::make_unique<nccl::NcclComm>(std::move(communicator), device, host.rank(), host.size(), "gpus",
                                                 "gpus", std::move(ranks), host.monitor());
    comm->set_default_deadline(host.default_deadline());
    return comm;
  } catch (const c10::Error& e) {
    error = e.what_without_backtrace();
  } catch (const std::exception& e) {
    error = e.what();
  }
  error = error.substr(0, error.find('\n'));
  return nullptr;
}

constexpr NcclPlugin kPlugin{&Connect};

}  // namespace
}  // namespace trainyard::dist

extern "C" const trainyard::dist::NcclPlugin* trainyard_nccl_plugin() { return &trainyard::dist::kPlugin; }
