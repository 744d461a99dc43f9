// Collectives over point-to-point messages. Each group has one thread that runs its calls strictly in the order in
// which they were made: with that, two ranks that make the same calls exchange the same messages, and the sums of a
// reduce-scatter run beside the caller's computing.
#include "trainer/dist/gloo_comm.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <mutex>
#include <sstream>
#include <thread>
#include <utility>

#include "trainer/dist/gloo_exchange.h"
#include "trainer/dist/gloo_group.h"
#include "trainer/dist/gloo_queue.h"
#include "trainer/dist/in_process_comm.h"
#include "trainer/dist/rank_order_sum.h"

namespace trainyard::dist {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using gloo::Shared;
using gloo::Task;

// Up to this size (times the ranks) an all-reduce gathers everything and sums: one exchange instead of two.
constexpr int64_t kSmallBytes = 256 << 10;

// Tags of users' messages are below this, those of collectives above.
constexpr uint32_t kFirstCollectiveTag = 1U << 15;

constexpr const char* kWorld = "world";

at::Tensor Bytes(const at::Tensor& t) { return t.view(at::kByte); }

class GlooComm final : public Comm {
 public:
  GlooComm(std::unique_ptr<GlooGroup> group, int rank, int size, std::string name)
      : Comm(rank, size, std::move(name)), peers_{rank, size}, shared_(std::make_shared<Shared>()) {
    shared_->group = std::move(group);
    thread_ = std::thread([shared = shared_] { gloo::RunQueue(shared); });
  }

  // Has `monitor` look after the calls from now on. `id`: the same on all ranks of the group and no other's;
  // `world_ranks`: index = rank in the group.
  void Join(const std::shared_ptr<Monitor>& monitor, std::string id, std::vector<int> world_ranks) {
    id_ = std::move(id);
    {
      std::lock_guard lock(shared_->mutex);
      shared_->monitor = monitor;
      shared_->world_ranks = world_ranks;
    }
    watched_ = monitor->AddGroup(name(), id_, std::move(world_ranks), [this](bool parted, const std::string& why) {
      shared_->Fail(parted ? CommError::Kind::kUsage : CommError::Kind::kPeerLost, why, why);
    });
    WatchedBy(monitor, watched_);
  }

  ~GlooComm() override {
    if (monitor()) {
      monitor()->RemoveGroup(watched_);
      if (id_ == kWorld && !closed())
        monitor()->Farewell("rank " + std::to_string(rank()) + " has left the group", false);
    }
    bool idle = false;
    {
      std::lock_guard lock(shared_->mutex);
      shared_->stopping = true;
      idle = shared_->queue.empty();
      shared_->changed.notify_all();
    }
    if (!idle) {
      shared_->Fail(CommError::Kind::kAborted, "the group was destroyed with calls outstanding",
                    "rank " + std::to_string(rank()) + " has left the group");
    }
    // A call that is running ends by its deadline at the latest; closing the group ends it now.
    shared_->group->Close();
    thread_.join();
  }

 protected:
  WorkPtr DoAllGather(at::Tensor out, at::Tensor in, CallContext options) override {
    return Enqueue(Call::kAllGather, options, [this, out, in](const Task& task, uint32_t tag) {
      gloo::Gather(*shared_, task, tag, peers_, out, in);
    });
  }
  WorkPtr DoReduceScatter(at::Tensor out, at::Tensor in, Reduce, CallContext options) override {
    return Enqueue(Call::kReduceScatter, options, [this, out, in](const Task& task, uint32_t tag) {
      gloo::Scatter(*shared_, task, tag, peers_, out, in);
    });
  }
  WorkPtr DoAllReduce(at::Tensor t, Reduce, CallContext options) override {
    return Enqueue(Call::kAllReduce, options, [this, t](const Task& task, uint32_t tag) {
      if (static_cast<int64_t>(t.nbytes()) * size() <= kSmallBytes) {
        at::Tensor all = at::empty({size() * t.numel()}, t.options());
        gloo::Gather(*shared_, task, tag, peers_, all, t);
        RankOrderSum(t, all.chunk(size()));
        return;
      }
      const int64_t slice = (t.numel() + size() - 1) / size();
      at::Tensor padded = t;
      if (slice * size() != t.numel()) {
        padded = at::empty({slice * size()}, t.options());
        gloo::CopyBytes(padded, t);
        padded.narrow(0, t.numel(), padded.numel() - t.numel()).zero_();
      }
      at::Tensor mine = padded.narrow(0, rank() * slice, slice);
      gloo::Scatter(*shared_, task, tag, peers_, mine, padded);
      gloo::Gather(*shared_, task, tag, peers_, padded, mine);
      if (!padded.is_same(t)) {
        gloo::CopyBytes(t, padded.narrow(0, 0, t.numel()));
      }
    });
  }
  WorkPtr DoAllToAll(at::Tensor out, at::Tensor in, CallContext options) override {
    return Enqueue(Call::kAllToAll, options, [this, out, in](const Task& task, uint32_t tag) {
      const int64_t n = in.numel() / size();
      gloo::Exchange exchange(*shared_, task, tag);
      for (int i = 1; i < size(); ++i) {
        exchange.Recv(out.narrow(0, peers_.From(i) * n, n), peers_.From(i));
      }
      for (int i = 1; i < size(); ++i) {
        exchange.Send(in.narrow(0, peers_.To(i) * n, n), peers_.To(i));
      }
      gloo::CopyBytes(out.narrow(0, rank() * n, n), in.narrow(0, rank() * n, n));
      exchange.Wait();
    });
  }
  WorkPtr DoBroadcast(at::Tensor t, int root, CallContext options) override {
    return Enqueue(Call::kBroadcast, options, [this, t, root](const Task& task, uint32_t tag) {
      // A binomial tree over the ranks counted from the root.
      const int me = (rank() - root + size()) % size();
      int reach = 1;
      gloo::Exchange exchange(*shared_, task, tag);
      for (; reach <= me; reach *= 2) {
      }
      if (me > 0) {
        exchange.Recv(t, (me - reach / 2 + root) % size());
        exchange.Wait();
      }
      for (; me + reach < size(); reach *= 2) {
        exchange.Send(t, (me + reach + root) % size());
      }
      exchange.Wait();
    });
  }
  WorkPtr DoBarrier(CallContext options) override {
    return Enqueue(Call::kBarrier, options, [this](const Task& task, uint32_t tag) {
      gloo::Gather(*shared_, task, tag, peers_, at::zeros({size()}, at::kByte), at::zeros({1}, at::kByte));
    });
  }

  WorkPtr DoSend(at::Tensor t, int to, int tag, CallContext options) override {
    Task task = MakeTask(Call::kSend, options);
    shared_->WaitsFor(task, to);
    return Start(std::move(task), [&] { return shared_->group->Send(Bytes(t), to, static_cast<uint32_t>(tag)); });
  }
  WorkPtr DoRecv(at::Tensor t, int from, int tag, CallContext options) override {
    Task task = MakeTask(Call::kRecv, options);
    shared_->WaitsFor(task, from);
    return Start(std::move(task), [&] { return shared_->group->Recv(Bytes(t), from, static_cast<uint32_t>(tag)); });
  }

  std::unique_ptr<Comm> DoSplit(const std::vector<int>& members, int color, int sequence,
                                CallContext options) override {
    if (members.empty()) return nullptr;
    const int me = static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
    const int count = static_cast<int>(members.size());
    const std::string group = "split/" + std::to_string(sequence) + "/" + std::to_string(color);
    if (count == 1) {
      return MakeSelfComm();
    }
    try {
      auto sub = shared_->group->Subgroup(group, me, count, options.deadline);
      auto comm = std::make_unique<GlooComm>(std::move(sub), me, count, name() + "/" + std::to_string(color));
      if (monitor()) comm->Join(monitor(), id_ + "/" + group, WorldRanks(members));
      return comm;
    } catch (const std::exception& e) {
      std::string why = monitor() ? monitor()->Missing(WorldRanks(members)) : "";
      if (why.empty()) why = e.what();
      throw CommError(CommError::Kind::kPeerLost, Who() + ": split '" + options.label + "' failed: " + why);
    }
  }

  void DoAbort(const std::string& reason) override {
    shared_->Fail(CommError::Kind::kAborted, "Abort() was called on this rank",
                  "rank " + std::to_string(rank()) + " gave up" + (reason.empty() ? "" : ": " + reason));
  }

 private:
  std::string Who() const {
    return "comm " + name() + ", rank " + std::to_string(rank()) + " of " + std::to_string(size());
  }
  std::vector<int> WorldRanks(const std::vector<int>& members) const {
    std::vector<int> ranks;
    for (const int member : members) ranks.push_back(shared_->world_ranks[static_cast<size_t>(member)]);
    return ranks;
  }

  Task MakeTask(Call call, const CallContext& options) const {
    Task task;
    task.id = options.id;
    task.what = Describe(call, options);
    task.allowed = options.deadline;
    task.start = Clock::now();
    return task;
  }

  // The tag of a collective comes from its place in the sequence and its signature: ranks that make different calls
  // never take each other's bytes for their own. They wait in vain, which the monitor sees.
  WorkPtr Enqueue(Call call, const CallContext& options, std::function<void(const Task&, uint32_t)> body) {
    auto task = std::make_shared<Task>(MakeTask(call, options));
    uint64_t hash = static_cast<uint64_t>(options.sequence) * 0x9e3779b97f4a7c15ULL + options.signature;
    hash = (hash ^ (hash >> 32)) * 0xd6e8feb86659fd93ULL;
    const uint32_t tag = kFirstCollectiveTag + static_cast<uint32_t>((hash >> 32) % ((1U << 31) - kFirstCollectiveTag));
    task->run = [body = std::move(body), raw = task.get(), tag] { body(*raw, tag); };
    std::lock_guard lock(shared_->mutex);
    if (shared_->failed) {
      shared_->Throw(task->what);
    }
    shared_->queue.push_back(task);
    shared_->changed.notify_all();
    return gloo::MakeWork(shared_, std::move(task));
  }

  WorkPtr Start(Task task, const std::function<std::unique_ptr<GlooMessage>()>& start) {
    try {
      auto message = start();
      return gloo::MakeWork(shared_, std::move(task), std::move(message));
    } catch (const std::exception& e) {
      gloo::FailCall(*shared_, task, e.what());
      std::lock_guard lock(shared_->mutex);
      shared_->Throw(task.what);
    }
  }

  const gloo::Peers peers_;
  const std::shared_ptr<Shared> shared_;
  std::string id_;    // of the group in the monitor
  int watched_ = -1;  // its number there
  std::thread thread_;
};

constexpr int64_t kDeskWords = 16;  // host, port and key of a desk as text

// Every rank opens its desk and learns where the others' are.
Status Watch(GlooComm& comm, const Rendezvous& to, const std::string& host) {
  std::shared_ptr<CallLog> log = std::make_shared<CallLog>();
  if (!to.record_file.empty()) {
    auto opened = CallLog::Open(to.record_file, to.rank, to.world);
    if (opened) log = std::move(*opened);
    if (!opened && to.say) to.say(opened.error().message + "; going on without it");
  }
  auto started = Monitor::Start(std::move(log), to.rank, host.find(':') != std::string::npos);
  if (!started) return Fail(started.error());
  std::shared_ptr<Monitor> monitor = std::move(*started);
  const std::string mine = host + " " + std::to_string(monitor->desk().port) + " " + monitor->desk().key;
  at::Tensor in = at::zeros({kDeskWords}, at::kLong);
  if (mine.size() >= in.nbytes())
    return Fail(ErrorCode::kInvalidArgument, "an address of this rank is too long: " + host);
  std::memcpy(in.mutable_data_ptr(), mine.data(), mine.size());
  at::Tensor out = at::empty({to.world, kDeskWords}, at::kLong);
  comm.AllGather(out, in, {.deadline = to.deadline, .label = "desks"})->Wait();
  std::vector<Desk> desks;
  std::vector<int> ranks;
  for (int r = 0; r < to.world; ++r) {
    std::istringstream text(reinterpret_cast<const char*>(out[r].const_data_ptr<int64_t>()));
    Desk& desk = desks.emplace_back();
    text >> desk.host >> desk.port >> desk.key;
    ranks.push_back(r);
  }
  monitor->Introduce(std::move(desks));
  comm.Join(monitor, kWorld, std::move(ranks));
  return {};
}

}  // namespace

Result<std::unique_ptr<Comm>> ConnectGloo(const Rendezvous& to) {
  if (to.world < 1 || to.rank < 0 || to.rank >= to.world) {
    return Fail(ErrorCode::kInvalidArgument,
                "rank " + std::to_string(to.rank) + " is not in a world of " + std::to_string(to.world));
  }
  if (to.world == 1) {
    return MakeSelfComm();
  }
  if (to.port < 1 || to.port > 65535) {
    return Fail(ErrorCode::kInvalidArgument, "port " + std::to_string(to.port) + " is not in 1 to 65535");
  }
  Result<std::unique_ptr<GlooGroup>> group = FormGlooGroup(to);
  if (!group) {
    return Fail(group.error());
  }
  const std::string host = (*group)->host();
  auto comm = std::make_unique<GlooComm>(std::move(*group), to.rank, to.world, kWorld);
  try {
    if (Status watched = Watch(*comm, to, host); !watched) return Fail(watched.error());
  } catch (const CommError& e) {
    return Fail(ErrorCode::kUnavailable, e.what());
  }
  return comm;
}

}  // namespace trainyard::dist
