#include "trainer/dist/nccl/nccl_comm.h"

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <c10/cuda/CUDAGuard.h>

#include "trainer/dist/in_process_comm.h"

namespace trainyard::dist::nccl {
namespace {

using Clock = std::chrono::steady_clock;

// An ordered sum brings this much of each peer's share at a time: its scratch stays small beside the gradients.
constexpr int64_t kPieceBytes = 16 << 20;
// Up to this size (times the ranks) an ordered all-reduce gathers everything and sums: one exchange instead of two.
constexpr int64_t kSmallBytes = 1 << 20;

ncclDataType_t TypeOf(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return ncclFloat32;
    case at::kDouble:
      return ncclFloat64;
    case at::kLong:
      return ncclInt64;
    default:
      throw NcclError(std::string("no sum of ") + c10::toString(type));
  }
}

// bfloat16 and half round once in our sums; NCCL's would round at every hop.
bool NcclSums(const at::Tensor& t, Reduce reduce) {
  return reduce == Reduce::kInt64 ||
         (reduce == Reduce::kSum && (t.scalar_type() == at::kFloat || t.scalar_type() == at::kDouble));
}

size_t Count(const at::Tensor& t) { return static_cast<size_t>(t.numel()); }
size_t Bytes(const at::Tensor& t) { return t.nbytes(); }
char* Data(const at::Tensor& t) { return static_cast<char*>(t.mutable_data_ptr()); }

// out = parts[0] + parts[1] + ...; `parts` [W, n].
void Sum(const at::Tensor& out, const at::Tensor& parts) {
  const bool half = out.scalar_type() == at::kBFloat16 || out.scalar_type() == at::kHalf;
  at::Tensor sum = half ? parts[0].to(at::kFloat) : out;
  if (!half) out.copy_(parts[0]);
  for (int64_t r = 1; r < parts.size(0); ++r) sum.add_(parts[r]);
  if (half) out.copy_(sum);
}

// A queued call: ordering the caller's stream behind it is all that waiting takes.
class StreamWork final : public Work {
 public:
  StreamWork(Watchdog& watchdog, std::shared_ptr<Flight> flight, bool blocks)
      : watchdog_(watchdog), flight_(std::move(flight)), blocks_(blocks) {}
  void Wait() override {
    watchdog_.CheckAlive(flight_->what);
    if (blocks_) return watchdog_.Await(*flight_);
    flight_->end->Order(c10::cuda::getCurrentCUDAStream());
    watchdog_.Release(*flight_);
  }

 private:
  Watchdog& watchdog_;
  const std::shared_ptr<Flight> flight_;
  const bool blocks_;
};

}  // namespace

NcclComm::NcclComm(std::unique_ptr<Communicator> communicator, int device, int rank, int size, std::string name,
                   std::string id, std::vector<int> world_ranks, std::shared_ptr<Monitor> monitor)
    : Comm(rank, size, std::move(name)),
      communicator_(std::move(communicator)),
      device_(device),
      id_(std::move(id)),
      world_ranks_(std::move(world_ranks)),
      // Of high priority: a collective holds up more GPUs than this one.
      stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, static_cast<c10::DeviceIndex>(device))) {
  const std::string who = "rank " + std::to_string(world_ranks_.at(static_cast<size_t>(rank)));
  watchdog_ = std::make_unique<Watchdog>(*communicator_, device_, who, monitor);
  if (monitor) {
    watched_ = monitor->AddGroup(
        this->name(), id_, world_ranks_,
        [this](bool parted, const std::string& why) {
          watchdog_->Fail(parted ? CommError::Kind::kUsage : CommError::Kind::kPeerLost, why, why);
        },
        /*blind=*/true);
    WatchedBy(std::move(monitor), watched_);
  }
}

NcclComm::~NcclComm() {
  if (monitor()) monitor()->RemoveGroup(watched_);
  watchdog_.reset();  // waits for what is queued
}

WorkPtr NcclComm::Launch(Call call, const CallContext& context, std::vector<at::Tensor> tensors, bool blocks,
                         const Body& body) {
  at::NoGradGuard no_grad;
  auto flight = std::make_shared<Flight>();
  flight->what = Describe(call, context);
  flight->context = context;
  flight->start = Clock::now();
  watchdog_->CheckAlive(flight->what);
  const c10::cuda::CUDAGuard device(static_cast<c10::DeviceIndex>(device_));
  try {
    StreamMark(c10::cuda::getCurrentCUDAStream()).Order(stream_);
    const c10::cuda::CUDAStreamGuard stream(stream_);
    body(flight->start + context.deadline);
    flight->end = std::make_unique<StreamMark>(stream_);
  } catch (const NcclError& e) {
    const bool late = Clock::now() >= flight->start + context.deadline;
    watchdog_->Fail(late ? CommError::Kind::kDeadline : CommError::Kind::kPeerLost,
                    flight->what + " failed: " + e.what(),
                    "rank " + std::to_string(world_ranks_[static_cast<size_t>(rank())]) + " gave up: " + e.what());
    watchdog_->CheckAlive(flight->what);
  }
  flight->tensors = std::move(tensors);
  watchdog_->Add(flight);
  return std::make_unique<StreamWork>(*watchdog_, std::move(flight), blocks);
}

void NcclComm::Gather(const at::Tensor& out, const at::Tensor& in, SteadyTime deadline) {
  communicator_->Group(deadline, [&](ncclComm_t comm) {
    Communicator::Check(ncclAllGather(Data(in), Data(out), Bytes(in), ncclInt8, comm, stream_), "ncclAllGather");
  });
}

void NcclComm::OrderedScatter(const at::Tensor& out, const at::Tensor& in, SteadyTime deadline) {
  const int64_t n = out.numel();
  const auto element = static_cast<int64_t>(in.element_size());
  const int64_t piece = std::min(n, kPieceBytes / element);
  // Of the group's stream, in whose order it is used and freed.
  const at::Tensor scratch = at::empty({size() * piece}, in.options());
  for (int64_t lo = 0; lo < n; lo += piece) {
    const int64_t count = std::min(piece, n - lo);
    const auto bytes = static_cast<size_t>(count * element);
    communicator_->Group(deadline, [&](ncclComm_t comm) {
      for (int r = 0; r < size(); ++r) {
        Communicator::Check(ncclSend(Data(in) + (r * n + lo) * element, bytes, ncclInt8, r, comm, stream_), "ncclSend");
        Communicator::Check(ncclRecv(Data(scratch) + r * count * element, bytes, ncclInt8, r, comm, stream_),
                            "ncclRecv");
      }
    });
    Sum(out.narrow(0, lo, count), scratch.narrow(0, 0, size() * count).view({size(), count}));
  }
}

WorkPtr NcclComm::DoAllGather(at::Tensor out, at::Tensor in, CallContext context) {
  return Launch(Call::kAllGather, context, {out, in}, false, [&](SteadyTime deadline) { Gather(out, in, deadline); });
}

WorkPtr NcclComm::DoReduceScatter(at::Tensor out, at::Tensor in, Reduce reduce, CallContext context) {
  return Launch(Call::kReduceScatter, context, {out, in}, false, [&](SteadyTime deadline) {
    if (!NcclSums(in, reduce)) return OrderedScatter(out, in, deadline);
    communicator_->Group(deadline, [&](ncclComm_t comm) {
      Communicator::Check(
          ncclReduceScatter(Data(in), Data(out), Count(out), TypeOf(in.scalar_type()), ncclSum, comm, stream_),
          "ncclReduceScatter");
    });
  });
}

WorkPtr NcclComm::DoAllReduce(at::Tensor t, Reduce reduce, CallContext context) {
  return Launch(Call::kAllReduce, context, {t}, false, [&](SteadyTime deadline) {
    if (NcclSums(t, reduce)) {
      communicator_->Group(deadline, [&](ncclComm_t comm) {
        Communicator::Check(ncclAllReduce(Data(t), Data(t), Count(t), TypeOf(t.scalar_type()), ncclSum, comm, stream_),
                            "ncclAllReduce");
      });
      return;
    }
    if (static_cast<int64_t>(t.nbytes()) <= kSmallBytes) {
      const at::Tensor all = at::empty({size(), t.numel()}, t.options());
      Gather(all, t, deadline);
      return Sum(t, all);
    }
    const int64_t slice = (t.numel() + size() - 1) / size();
    at::Tensor padded = t;
    if (slice * size() != t.numel()) {
      padded = at::zeros({slice * size()}, t.options());
      padded.narrow(0, 0, t.numel()).copy_(t);
    }
    const at::Tensor mine = padded.narrow(0, rank() * slice, slice);
    OrderedScatter(mine, padded, deadline);
    Gather(padded, mine, deadline);
    if (!padded.is_same(t)) t.copy_(padded.narrow(0, 0, t.numel()));
  });
}

WorkPtr NcclComm::DoAllToAll(at::Tensor out, at::Tensor in, CallContext context) {
  return Launch(Call::kAllToAll, context, {out, in}, false, [&](SteadyTime deadline) {
    const size_t bytes = Bytes(in) / static_cast<size_t>(size());
    communicator_->Group(deadline, [&](ncclComm_t comm) {
      for (int r = 0; r < size(); ++r) {
        const size_t offset = static_cast<size_t>(r) * bytes;
        Communicator::Check(ncclSend(Data(in) + offset, bytes, ncclInt8, r, comm, stream_), "ncclSend");
        Communicator::Check(ncclRecv(Data(out) + offset, bytes, ncclInt8, r, comm, stream_), "ncclRecv");
      }
    });
  });
}

WorkPtr NcclComm::DoBroadcast(at::Tensor t, int root, CallContext context) {
  return Launch(Call::kBroadcast, context, {t}, false, [&](SteadyTime deadline) {
    communicator_->Group(deadline, [&](ncclComm_t comm) {
      Communicator::Check(ncclBroadcast(Data(t), Data(t), Bytes(t), ncclInt8, root, comm, stream_), "ncclBroadcast");
    });
  });
}

WorkPtr NcclComm::DoSend(at::Tensor t, int to, int /*tag*/, CallContext context) {
  return Launch(Call::kSend, context, {t}, false, [&](SteadyTime deadline) {
    communicator_->Group(deadline, [&](ncclComm_t comm) {
      Communicator::Check(ncclSend(Data(t), Bytes(t), ncclInt8, to, comm, stream_), "ncclSend");
    });
  });
}

WorkPtr NcclComm::DoRecv(at::Tensor t, int from, int /*tag*/, CallContext context) {
  return Launch(Call::kRecv, context, {t}, false, [&](SteadyTime deadline) {
    communicator_->Group(deadline, [&](ncclComm_t comm) {
      Communicator::Check(ncclRecv(Data(t), Bytes(t), ncclInt8, from, comm, stream_), "ncclRecv");
    });
  });
}

WorkPtr NcclComm::DoBarrier(CallContext context) {
  const at::Tensor one = at::zeros({1}, at::TensorOptions(at::kLong).device(memory()));
  return Launch(Call::kBarrier, context, {one}, true, [&](SteadyTime deadline) {
    communicator_->Group(deadline, [&](ncclComm_t comm) {
      Communicator::Check(ncclAllReduce(Data(one), Data(one), 1, ncclInt64, ncclSum, comm, stream_), "ncclAllReduce");
    });
  });
}

std::unique_ptr<Comm> NcclComm::DoSplit(const std::vector<int>& members, int color, int sequence, CallContext context) {
  const auto me = std::find(members.begin(), members.end(), rank());
  const int index = static_cast<int>(me - members.begin());
  std::unique_ptr<Communicator> part;
  try {
    part = communicator_->Split(color, index, Clock::now() + context.deadline);
  } catch (const NcclError& e) {
    throw CommError(CommError::Kind::kPeerLost,
                    "comm " + name() + ": split '" + context.label + "' failed: " + e.what());
  }
  if (part == nullptr) return nullptr;
  std::vector<int> ranks;
  for (const int member : members) ranks.push_back(world_ranks_[static_cast<size_t>(member)]);
  const std::string place = std::to_string(sequence) + "/" + std::to_string(color);
  return std::make_unique<NcclComm>(std::move(part), device_, index, static_cast<int>(members.size()),
                                    name() + "/" + std::to_string(color), id_ + "/split/" + place, std::move(ranks),
                                    monitor());
}

void NcclComm::DoAbort(const std::string& reason) {
  watchdog_->Fail(CommError::Kind::kAborted, "Abort() was called on this rank",
                  "rank " + std::to_string(world_ranks_[static_cast<size_t>(rank())]) + " gave up" +
                      (reason.empty() ? "" : ": " + reason));
}

}  // namespace trainyard::dist::nccl
