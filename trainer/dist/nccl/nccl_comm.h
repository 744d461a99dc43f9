// Comm over NCCL, for tensors on one GPU per rank; what differs from other backends is in trainer/dist/nccl_plugin.h.
// Thread-safety: as Comm.
#pragma once

#include <c10/cuda/CUDAStream.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainer/dist/comm.h"
#include "trainer/dist/nccl/communicator.h"
#include "trainer/dist/nccl/watchdog.h"

namespace trainyard::dist::nccl {

class NcclComm final : public Comm {
 public:
  // `id` and `world_ranks` (index = rank in the group) as in Monitor::AddGroup; `monitor` may be null.
  NcclComm(std::unique_ptr<Communicator> communicator, int device, int rank, int size, std::string name, std::string id,
           std::vector<int> world_ranks, std::shared_ptr<Monitor> monitor);
  ~NcclComm() override;

  WorkPtr DoAllGather(at::Tensor out, at::Tensor in, CallContext context) override;
  WorkPtr DoReduceScatter(at::Tensor out, at::Tensor in, Reduce reduce, CallContext context) override;
  WorkPtr DoAllReduce(at::Tensor t, Reduce reduce, CallContext context) override;
  WorkPtr DoAllToAll(at::Tensor out, at::Tensor in, CallContext context) override;
  WorkPtr DoBroadcast(at::Tensor t, int root, CallContext context) override;
  WorkPtr DoSend(at::Tensor t, int to, int tag, CallContext context) override;
  WorkPtr DoRecv(at::Tensor t, int from, int tag, CallContext context) override;
  WorkPtr DoBarrier(CallContext context) override;
  std::unique_ptr<Comm> DoSplit(const std::vector<int>& members, int color, int sequence, CallContext context) override;
  void DoAbort(const std::string& reason) override;
  at::Device memory() const override { return {at::kCUDA, static_cast<c10::DeviceIndex>(device_)}; }

 private:
  using Body = std::function<void(SteadyTime deadline)>;
  // Queues `body` on the group's stream, after what the caller's stream has been given so far.
  WorkPtr Launch(Call call, const CallContext& context, std::vector<at::Tensor> tensors, bool blocks, const Body& body);
  void Gather(const at::Tensor& out, const at::Tensor& in, SteadyTime deadline);
  // out [n] = this rank's slice of in [W*n], added in rank order.
  void OrderedScatter(const at::Tensor& out, const at::Tensor& in, SteadyTime deadline);

  const std::unique_ptr<Communicator> communicator_;
  const int device_;
  const std::string id_;
  const std::vector<int> world_ranks_;
  const c10::cuda::CUDAStream stream_;
  int watched_ = -1;
  std::unique_ptr<Watchdog> watchdog_;
};

}  // namespace trainyard::dist::nccl
