#include "trainer/dist/in_process_comm.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "trainer/dist/rank_order_sum.h"

namespace trainyard::dist {
namespace {

using Clock = std::chrono::steady_clock;

// What one rank brings to a call.
struct Part {
  Call call = Call::kBarrier;
  Reduce reduce = Reduce::kSum;
  int root = -1;
  at::Tensor out;
  at::Tensor in;
  uint64_t signature = 0;  // of CallContext
  std::string what;        // Describe(): for messages to the others
};

// One call of the group: complete when every participant has brought its part; the last one does the work for all.
struct Slot {
  std::map<int, Part> parts;  // by rank
  std::vector<int> participants;
  bool done = false;
  // Ranks whose deadline passed: their buffers are their own again, so the call never completes.
  std::vector<int> gave_up;
  std::string missing;  // whom the first of them waited for
};

// (0, 0, 0, 0, n): the n-th collective; (1, from, to, tag, n): the n-th message of that kind.
using SlotKey = std::tuple<int, int, int, int, int64_t>;

bool Alike(const Part& a, const Part& b) {
  const bool p2p = (a.call == Call::kSend && b.call == Call::kRecv) || (a.call == Call::kRecv && b.call == Call::kSend);
  return p2p ? a.in.scalar_type() == b.in.scalar_type() && a.in.numel() == b.in.numel() : a.signature == b.signature;
}

// Does the call for all ranks at once. Results are made aside before any is written: `out` may overlap `in`.
void Execute(Slot& slot) {
  at::NoGradGuard no_grad;
  const Part& first = slot.parts.begin()->second;
  if (first.call == Call::kBarrier) {
    return;
  }
  if (first.call == Call::kSend || first.call == Call::kRecv) {
    Part& a = slot.parts.begin()->second;
    Part& b = slot.parts.rbegin()->second;
    (a.call == Call::kSend ? b : a).out.copy_((a.call == Call::kSend ? a : b).in);
    return;
  }
  std::vector<at::Tensor> ins;
  for (auto& [rank, part] : slot.parts) {
    ins.push_back(part.in);
  }
  const int64_t world = static_cast<int64_t>(ins.size());
  const int64_t slice = first.in.numel() / world;
  std::vector<at::Tensor> results;
  for (auto& [rank, part] : slot.parts) {
    const bool sliced = part.call == Call::kReduceScatter || part.call == Call::kAllToAll;
    std::vector<at::Tensor> pieces = ins;
    if (sliced) {
      for (at::Tensor& piece : pieces) {
        piece = piece.narrow(0, rank * slice, slice);
      }
    }
    if (part.call == Call::kReduceScatter || part.call == Call::kAllReduce) {
      results.push_back(at::empty_like(part.out));
      RankOrderSum(results.back(), pieces);
    } else {
      results.push_back(part.call == Call::kBroadcast ? ins[part.root].clone() : at::cat(pieces));
    }
  }
  for (size_t r = 0; r < results.size(); ++r) {
    slot.parts.at(static_cast<int>(r)).out.copy_(results[r]);
  }
}

// What the ranks of a group share.
class Hub {
 public:
  explicit Hub(int world) : left_(world, false) {}

  std::shared_ptr<Slot> Arrive(const SlotKey& key, std::vector<int> participants, int rank, Part part) {
    std::lock_guard lock(mutex_);
    std::shared_ptr<Slot>& entry = slots_[key];
    if (!entry) {
      entry = std::make_shared<Slot>();
      entry->participants = std::move(participants);
    }
    std::shared_ptr<Slot> slot = entry;
    slot->parts[rank] = std::move(part);
    if (!slot->gave_up.empty()) {
      FailLocked(CommError::Kind::kPeerLost, -1,
                 "rank " + std::to_string(slot->gave_up.front()) + " gave up: " + slot->missing + " had not come");
    }
    const Part& first = slot->parts.begin()->second;
    for (const auto& [other, theirs] : slot->parts) {
      if (!Alike(first, theirs)) {
        FailLocked(CommError::Kind::kUsage, -1,
                   "the ranks make different calls: " + first.what + "; " + theirs.what +
                       " (these differ by call, label, type, length, sum or root)");
      }
    }
    for (int peer : slot->participants) {
      if (left_[peer] && !slot->parts.contains(peer)) {
        FailLocked(CommError::Kind::kPeerLost, -1, "rank " + std::to_string(peer) + " has left the group");
      }
    }
    if (slot->parts.size() == slot->participants.size()) {
      slots_.erase(key);
      if (failure_.empty()) {
        Execute(*slot);
        slot->done = true;
        changed_.notify_all();
      }
      slot->parts.clear();
    }
    return slot;
  }

  void Await(const std::shared_ptr<Slot>& slot, int rank, const std::string& what, Clock::time_point deadline,
             std::chrono::milliseconds allowed) {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline, [&] { return slot->done || !failure_.empty(); });
    if (slot->done) {
      return;
    }
    if (!failure_.empty()) {
      const bool mine = failed_by_ == rank;
      throw CommError(mine ? CommError::Kind::kAborted : kind_, what + " failed: " + (mine ? "aborted" : failure_));
    }
    std::string missing;
    for (int peer : slot->participants) {
      const bool came = slot->parts.contains(peer) || std::count(slot->gave_up.begin(), slot->gave_up.end(), peer) > 0;
      if (!came) missing += (missing.empty() ? "rank " : ", rank ") + std::to_string(peer);
    }
    if (slot->gave_up.empty()) slot->missing = missing;
    slot->gave_up.push_back(rank);
    slot->parts.erase(rank);
    throw CommError(CommError::Kind::kDeadline, what + " did not complete within its deadline of " +
                                                    std::to_string(allowed.count()) + " ms: " + missing +
                                                    " has not come");
  }

  void Leave(int rank) {
    std::lock_guard lock(mutex_);
    left_[rank] = true;
    for (const auto& [key, slot] : slots_) {
      const auto& needs = slot->participants;
      if (std::count(needs.begin(), needs.end(), rank) > 0 && !slot->parts.contains(rank)) {
        FailLocked(CommError::Kind::kPeerLost, -1, "rank " + std::to_string(rank) + " has left the group");
      }
    }
  }

  void Abort(int rank, const std::string& reason) {
    std::lock_guard lock(mutex_);
    FailLocked(CommError::Kind::kPeerLost, rank,
               "rank " + std::to_string(rank) + " gave up" + (reason.empty() ? "" : ": " + reason));
  }

  // The end of `index` in the group of a split; the first member to come makes it for all.
  std::unique_ptr<Comm> Join(std::pair<int, int> split, int index, int size);

 private:
  void FailLocked(CommError::Kind kind, int by, std::string failure) {
    if (failure_.empty()) {
      kind_ = kind;
      failed_by_ = by;
      failure_ = std::move(failure);
      changed_.notify_all();
    }
  }

  std::mutex mutex_;  // guards everything below and the slots
  std::condition_variable changed_;
  std::vector<bool> left_;
  std::map<SlotKey, std::shared_ptr<Slot>> slots_;                            // calls that wait for ranks
  std::map<std::pair<int, int>, std::vector<std::unique_ptr<Comm>>> groups_;  // (split, color): ends not taken yet
  std::string failure_;                                                       // not empty: the group is broken
  CommError::Kind kind_ = CommError::Kind::kPeerLost;
  int failed_by_ = -1;
};

class SlotWork final : public Work {
 public:
  SlotWork(std::shared_ptr<Hub> hub, std::shared_ptr<Slot> slot, int rank, std::string what,
           std::chrono::milliseconds allowed)
      : hub_(std::move(hub)),
        slot_(std::move(slot)),
        rank_(rank),
        what_(std::move(what)),
        allowed_(allowed),
        deadline_(Clock::now() + allowed) {}
  void Wait() override { hub_->Await(slot_, rank_, what_, deadline_, allowed_); }

 private:
  const std::shared_ptr<Hub> hub_;
  const std::shared_ptr<Slot> slot_;
  const int rank_;
  const std::string what_;
  const std::chrono::milliseconds allowed_;
  const Clock::time_point deadline_;
};

class InProcessComm final : public Comm {
 public:
  InProcessComm(std::shared_ptr<Hub> hub, int rank, int size, std::string name)
      : Comm(rank, size, std::move(name)), hub_(std::move(hub)) {
    for (int r = 0; r < size; ++r) {
      everyone_.push_back(r);
    }
  }
  ~InProcessComm() override { hub_->Leave(rank()); }

 protected:
  WorkPtr DoAllGather(at::Tensor out, at::Tensor in, CallContext options) override {
    return Collective(options, {.call = Call::kAllGather, .out = std::move(out), .in = std::move(in)});
  }
  WorkPtr DoReduceScatter(at::Tensor out, at::Tensor in, Reduce reduce, CallContext options) override {
    return Collective(options,
                      {.call = Call::kReduceScatter, .reduce = reduce, .out = std::move(out), .in = std::move(in)});
  }
  WorkPtr DoAllReduce(at::Tensor t, Reduce reduce, CallContext options) override {
    return Collective(options, {.call = Call::kAllReduce, .reduce = reduce, .out = t, .in = t});
  }
  WorkPtr DoAllToAll(at::Tensor out, at::Tensor in, CallContext options) override {
    return Collective(options, {.call = Call::kAllToAll, .out = std::move(out), .in = std::move(in)});
  }
  WorkPtr DoBroadcast(at::Tensor t, int root, CallContext options) override {
    return Collective(options, {.call = Call::kBroadcast, .root = root, .out = t, .in = t});
  }
  WorkPtr DoBarrier(CallContext options) override {
    at::Tensor nothing = at::empty({0}, at::kByte);
    return Collective(options, {.call = Call::kBarrier, .out = nothing, .in = nothing});
  }
  WorkPtr DoSend(at::Tensor t, int to, int tag, CallContext options) override {
    return Message(options, rank(), to, tag, {.call = Call::kSend, .out = t, .in = t});
  }
  WorkPtr DoRecv(at::Tensor t, int from, int tag, CallContext options) override {
    return Message(options, from, rank(), tag, {.call = Call::kRecv, .out = t, .in = t});
  }
  std::unique_ptr<Comm> DoSplit(const std::vector<int>& members, int color, int sequence, CallContext) override {
    if (members.empty()) return nullptr;
    const auto mine = std::find(members.begin(), members.end(), rank());
    return hub_->Join({sequence, color}, static_cast<int>(mine - members.begin()), static_cast<int>(members.size()));
  }
  void DoAbort(const std::string& reason) override { hub_->Abort(rank(), reason); }

 private:
  WorkPtr Collective(const CallContext& options, Part part) {
    return Post({0, 0, 0, 0, collectives_++}, everyone_, options, std::move(part));
  }
  WorkPtr Message(const CallContext& options, int from, int to, int tag, Part part) {
    return Post({1, from, to, tag, messages_[{from, to, tag}]++}, {from, to}, options, std::move(part));
  }
  WorkPtr Post(const SlotKey& key, std::vector<int> participants, const CallContext& options, Part part) {
    std::string what = Describe(part.call, options);
    part.what = what;
    part.signature = options.signature;
    auto slot = hub_->Arrive(key, std::move(participants), rank(), std::move(part));
    return std::make_unique<SlotWork>(hub_, std::move(slot), rank(), std::move(what), options.deadline);
  }

  const std::shared_ptr<Hub> hub_;
  std::vector<int> everyone_;
  int64_t collectives_ = 0;
  std::map<std::tuple<int, int, int>, int64_t> messages_;  // (from, to, tag): how many so far
};

std::vector<std::unique_ptr<Comm>> MakeNamed(int world, const std::string& name) {
  auto hub = std::make_shared<Hub>(world);
  std::vector<std::unique_ptr<Comm>> comms;
  for (int r = 0; r < world; ++r) {
    comms.push_back(std::make_unique<InProcessComm>(hub, r, world, name));
  }
  return comms;
}

std::unique_ptr<Comm> Hub::Join(std::pair<int, int> split, int index, int size) {
  std::lock_guard lock(mutex_);
  auto& ends = groups_[split];
  if (ends.empty()) {
    ends = MakeNamed(size, "split " + std::to_string(split.first) + "/" + std::to_string(split.second));
  }
  return std::move(ends[index]);
}

}  // namespace

std::vector<std::unique_ptr<Comm>> MakeInProcessComms(int world) { return MakeNamed(world, "in-process"); }

std::unique_ptr<Comm> MakeSelfComm() { return std::move(MakeNamed(1, "self")[0]); }

}  // namespace trainyard::dist
