// Comm: a group of ranks and the collectives between them. Calls return at once with a Work; buffers belong to the call
// until Wait() returns. Every call has a deadline and a label, so a lost or silent peer ends in a CommError that says
// which call it was and never in a hang.
//
// All ranks of a group make the same calls in the same order (Send and Recv excepted). Tensors are contiguous and in
// the group's kind of memory. A call of zero elements, or in a group of one rank, is done locally: no backend sees it.
// After one CommError the group is unusable; Abort() it and leave.
//
// Thread-safety: one thread at a time makes calls; Abort() and the counters may be used from any thread.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "operator/base/error.h"
#include "trainer/dist/observer.h"

namespace trainyard::dist {

class Monitor;

// The only exception that crosses rooms of the trainer: it has to travel through autograd.
class CommError : public std::runtime_error {
 public:
  enum class Kind {
    kPeerLost,  // a connection closed: a peer died or aborted
    kDeadline,  // a peer stayed silent until the deadline
    kAborted,   // Abort() was called on this rank
    kUsage,     // the call itself is wrong (shapes, types) or differs from the peers' calls
  };
  CommError(Kind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

enum class Reduce {
  kSum,         // floating point; the order of summation is the backend's choice
  kOrderedSum,  // floating point, added in rank order: the same bits on every rank and in every run
  kInt64,       // int64 tensors, modulo 2^64: exact in any order
};
// bfloat16 and half are added in fp32 and rounded once; double is added in double.

struct CallOptions {
  std::chrono::milliseconds deadline{0};  // counted from the call; 0: the group's default_deadline()
  // Who is asking, for error messages: "gather block.3". The same on every rank: ranks whose calls carry different
  // labels make different calls.
  std::string label;
};

// What a backend is told of a call besides its tensors.
struct CallContext : CallOptions {
  int64_t sequence = -1;   // place among the collectives of the group, from 0; -1: Send, Recv
  uint64_t signature = 0;  // of operation, bytes, type, root or sum, label: the same on all ranks
  uint64_t id = 0;         // in the call log; 0: not watched
};

// A call under way. Dropping it without Wait() leaves the call running; its buffers stay alive.
class Work {
 public:
  virtual ~Work() = default;
  // Blocks until the call is complete on this rank; for tensors of a GPU, makes the work that this thread queues from
  // now on wait for it. Throws CommError when it failed; may be called again.
  virtual void Wait() = 0;
};
using WorkPtr = std::unique_ptr<Work>;

enum class Call { kAllGather, kReduceScatter, kAllReduce, kAllToAll, kBroadcast, kSend, kRecv, kBarrier };
inline constexpr int kCallKinds = 8;
std::string_view CallName(Call call);

class Comm {
 public:
  static constexpr std::chrono::milliseconds kDefaultDeadline = std::chrono::minutes(5);

  virtual ~Comm() = default;
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }

  // Element counts below are per tensor: `out` [W*n] means out.numel() == size() * in.numel(). Types of in and out are
  // equal. Wrong shapes or types throw CommError (kUsage) from the call itself.

  // out [W*n] = the `in` [n] of all ranks in rank order.
  WorkPtr AllGather(at::Tensor out, at::Tensor in, CallOptions options = {});
  // out [n] = sum over ranks of the slice of `in` [W*n] that is this rank's.
  WorkPtr ReduceScatter(at::Tensor out, at::Tensor in, Reduce reduce, CallOptions options = {});
  // t = sum over ranks of t, in place; the same bits on every rank.
  WorkPtr AllReduce(at::Tensor t, Reduce reduce, CallOptions options = {});
  // Slice r of `out` [W*n] = this rank's slice of `in` [W*n] on rank r.
  WorkPtr AllToAll(at::Tensor out, at::Tensor in, CallOptions options = {});
  // t = the t of rank `root`.
  WorkPtr Broadcast(at::Tensor t, int root, CallOptions options = {});
  // One tensor to or from one other rank; pairs match by tag (0 to 2^15 - 1), then by order.
  WorkPtr Send(at::Tensor t, int to, int tag, CallOptions options = {});
  WorkPtr Recv(at::Tensor t, int from, int tag, CallOptions options = {});
  // Blocks until every rank is here. Throws CommError.
  void Barrier(CallOptions options = {});

  // The ranks that give the same color form a new group, ordered by key and then by old rank. Collective over this
  // group, blocking; a negative color joins none and gets null. Throws CommError.
  std::unique_ptr<Comm> Split(int color, int key, CallOptions options = {});

  // Ends every call of this rank with CommError (kAborted) and closes its connections, so that the peers see a lost
  // peer at once; where the group is watched, they read `reason` in their own errors. For good. Groups made by Split
  // have to be aborted by themselves.
  void Abort(const std::string& reason = "");

  // Orderly end, called once by every rank when no call is outstanding: waits until all are here, so that what rank 0
  // holds for the group outlives the last user; then destroy the Comm. Error when a peer does not come within
  // `deadline`: the training itself is not affected. A Comm destroyed without Close is a lost peer to whoever still
  // waits for it.
  Status Close(std::chrono::milliseconds deadline = std::chrono::seconds(5));

  std::chrono::milliseconds default_deadline() const { return default_deadline_; }
  void set_default_deadline(std::chrono::milliseconds deadline) { default_deadline_ = deadline; }

  // Tells `observer` of every wait from now on; groups made by Split after this tell it too. Null: nobody.
  void set_observer(std::shared_ptr<CommObserver> observer) { observer_ = std::move(observer); }

  // The calls of this group are made beside training, by a thread of their own: whoever asks why this rank does not
  // come to a call of another group is not told of them. Right after Split.
  void SetBackground();

  // Where the group's tensors live.
  virtual at::Device memory() const { return at::kCPU; }

  // Who looks after the calls of this group; null: nobody.
  const std::shared_ptr<Monitor>& monitor() const { return monitor_; }

  // Payload so far: bytes of the larger tensor of each call that reached the backend, whatever the backend sends on
  // the wire for it.
  int64_t payload_bytes() const;
  int64_t payload_bytes(Call call) const { return payload_[static_cast<int>(call)].load(std::memory_order_relaxed); }

 protected:
  Comm(int rank, int size, std::string name);

  // What a backend provides. Arguments are checked, non-empty and flat (1-d); size() > 1; the deadline is set.
  virtual WorkPtr DoAllGather(at::Tensor out, at::Tensor in, CallContext context) = 0;
  virtual WorkPtr DoReduceScatter(at::Tensor out, at::Tensor in, Reduce reduce, CallContext context) = 0;
  virtual WorkPtr DoAllReduce(at::Tensor t, Reduce reduce, CallContext context) = 0;
  virtual WorkPtr DoAllToAll(at::Tensor out, at::Tensor in, CallContext context) = 0;
  virtual WorkPtr DoBroadcast(at::Tensor t, int root, CallContext context) = 0;
  virtual WorkPtr DoSend(at::Tensor t, int to, int tag, CallContext context) = 0;
  virtual WorkPtr DoRecv(at::Tensor t, int from, int tag, CallContext context) = 0;
  virtual WorkPtr DoBarrier(CallContext context) = 0;
  // `members`: old ranks of the new group in new rank order, this rank among them; none where this rank joins no group,
  // and then the answer is null. `sequence` counts splits.
  virtual std::unique_ptr<Comm> DoSplit(const std::vector<int>& members, int color, int sequence,
                                        CallContext context) = 0;
  virtual void DoAbort(const std::string& reason) = 0;

  // "comm shard, rank 1 of 4: AllGather 'unit 3 gather'": the start of every error message.
  std::string Describe(Call call, const CallOptions& options) const;

  // From now on `monitor` looks after the calls of this group, under the number that it gave the group. Before the
  // first call.
  void WatchedBy(std::shared_ptr<Monitor> monitor, int group);
  bool closed() const { return closed_.load(); }

 private:
  // `payload`: the larger tensor, if any; `what`: root or kind of sum.
  CallContext Prepare(Call call, CallOptions options, const at::Tensor& payload, int64_t what = 0);
  WorkPtr Observed(WorkPtr work);  // that of the call which was prepared last
  [[noreturn]] void Misuse(Call call, const CallOptions& options, const std::string& what) const;
  at::Tensor Flat(Call call, const CallOptions& options, const at::Tensor& t) const;
  void CheckPair(Call call, const CallOptions& options, const at::Tensor& larger, const at::Tensor& smaller,
                 int64_t factor) const;
  void CheckReduce(Call call, const CallOptions& options, const at::Tensor& t, Reduce reduce) const;
  void CheckPeer(Call call, const CallOptions& options, int peer) const;

  const int rank_;
  const int size_;
  const std::string name_;
  std::chrono::milliseconds default_deadline_ = kDefaultDeadline;
  int splits_ = 0;
  int64_t sequence_ = 0;
  std::shared_ptr<CommObserver> observer_;
  ObservedCall prepared_;       // with an observer only
  std::string prepared_label_;  // of the same call
  std::shared_ptr<Monitor> monitor_;
  int group_ = -1;
  std::atomic<bool> aborted_{false};
  std::atomic<bool> closed_{false};
  std::array<std::atomic<int64_t>, kCallKinds> payload_{};
};

}  // namespace trainyard::dist
