#include "trainer/dist/comm.h"

#include <algorithm>
#include <utility>

#include "trainer/dist/monitor.h"

namespace trainyard::dist {
namespace {

// For calls that need no backend.
class DoneWork final : public Work {
 public:
  void Wait() override {}
};

// Times what Wait blocks.
class ObservedWork final : public Work {
 public:
  ObservedWork(WorkPtr work, ObservedCall call, std::string label, std::shared_ptr<CommObserver> observer)
      : work_(std::move(work)), call_(call), label_(std::move(label)), observer_(std::move(observer)) {
    call_.label = label_;
  }
  void Wait() override {
    const auto begin = std::chrono::steady_clock::now();
    work_->Wait();
    if (told_) return;
    told_ = true;
    observer_->Waited(call_, begin, std::chrono::steady_clock::now());
  }

 private:
  const WorkPtr work_;
  ObservedCall call_;
  const std::string label_;
  const std::shared_ptr<CommObserver> observer_;
  bool told_ = false;
};

WorkPtr Done() { return std::make_unique<DoneWork>(); }

void CopyTo(const at::Tensor& out, const at::Tensor& in) {
  if (!out.is_same(in) && out.numel() > 0) {
    at::NoGradGuard no_grad;
    out.view({-1}).copy_(in.view({-1}));
  }
}

// FNV-1a: the same on every rank and in every build.
uint64_t Signature(Call call, std::string_view label, int64_t bytes, int64_t what) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  const auto add = [&hash](uint64_t byte) { hash = (hash ^ byte) * 0x100000001b3ULL; };
  for (const int64_t number : {static_cast<int64_t>(call), bytes, what}) {
    for (int shift = 0; shift < 64; shift += 8) add(static_cast<uint64_t>(number) >> shift & 0xff);
  }
  for (const char c : label) add(static_cast<unsigned char>(c));
  return hash;
}

}  // namespace

std::string_view CallName(Call call) {
  constexpr std::string_view kNames[kCallKinds] = {"AllGather", "ReduceScatter", "AllReduce", "AllToAll",
                                                   "Broadcast", "Send",          "Recv",      "Barrier"};
  return kNames[static_cast<int>(call)];
}

Comm::Comm(int rank, int size, std::string name) : rank_(rank), size_(size), name_(std::move(name)) {}

std::string Comm::Describe(Call call, const CallOptions& options) const {
  std::string text = "comm " + name_ + ", rank " + std::to_string(rank_) + " of " + std::to_string(size_) + ": " +
                     std::string(CallName(call));
  if (!options.label.empty()) {
    text += " '" + options.label + "'";
  }
  return text;
}

void Comm::Misuse(Call call, const CallOptions& options, const std::string& what) const {
  throw CommError(CommError::Kind::kUsage, Describe(call, options) + ": " + what);
}

void Comm::WatchedBy(std::shared_ptr<Monitor> monitor, int group) {
  monitor_ = std::move(monitor);
  group_ = group;
}

void Comm::SetBackground() {
  if (monitor_) monitor_->log().SetBackground(group_);
}

CallContext Comm::Prepare(Call call, CallOptions options, const at::Tensor& payload, int64_t what) {
  const int64_t bytes = payload.defined() ? static_cast<int64_t>(payload.nbytes()) : 0;
  const auto type = static_cast<int64_t>(payload.defined() ? payload.scalar_type() : at::kByte);
  if (aborted_.load()) {
    throw CommError(CommError::Kind::kAborted, Describe(call, options) + ": the group was aborted before");
  }
  if (options.deadline.count() <= 0) {
    options.deadline = default_deadline_;
  }
  payload_[static_cast<int>(call)].fetch_add(bytes, std::memory_order_relaxed);
  if (observer_) {
    prepared_ = {CallName(call), {}, bytes, std::chrono::steady_clock::now()};
    prepared_label_ = options.label;
  }
  CallContext context{std::move(options)};
  context.signature = Signature(call, context.label, bytes, type << 32 | what);
  if (call != Call::kSend && call != Call::kRecv) context.sequence = sequence_++;
  if (monitor_) {
    context.id = monitor_->Begin({.group = group_,
                                  .sequence = context.sequence,
                                  .signature = context.signature,
                                  .operation = std::string(CallName(call)),
                                  .label = context.label,
                                  .bytes = bytes,
                                  .allowed = context.deadline,
                                  .ordinary = default_deadline_});
  }
  return context;
}

WorkPtr Comm::Observed(WorkPtr work) {
  if (!observer_) {
    return work;
  }
  return std::make_unique<ObservedWork>(std::move(work), prepared_, prepared_label_, observer_);
}

// A 1-d alias of `t` outside autograd and with its own version counter: what backends work on.
at::Tensor Comm::Flat(Call call, const CallOptions& options, const at::Tensor& t) const {
  if (!t.defined() || !t.is_contiguous()) {
    Misuse(call, options, "the tensor must be defined and contiguous");
  }
  return t.variable_data().view({-1});
}

void Comm::CheckPair(Call call, const CallOptions& options, const at::Tensor& larger, const at::Tensor& smaller,
                     int64_t factor) const {
  if (larger.scalar_type() != smaller.scalar_type()) {
    Misuse(call, options, "out and in are of different types");
  }
  if (larger.numel() != factor * smaller.numel()) {
    Misuse(call, options,
           "tensors of " + std::to_string(larger.numel()) + " and " + std::to_string(smaller.numel()) +
               " elements, where the first must be " + std::to_string(factor) + " times the second");
  }
}

void Comm::CheckReduce(Call call, const CallOptions& options, const at::Tensor& t, Reduce reduce) const {
  const at::ScalarType type = t.scalar_type();
  const bool fits = reduce == Reduce::kInt64
                        ? type == at::kLong
                        : type == at::kFloat || type == at::kDouble || type == at::kBFloat16 || type == at::kHalf;
  if (!fits) {
    Misuse(call, options, std::string("no such sum of ") + c10::toString(type) + " tensors");
  }
}

void Comm::CheckPeer(Call call, const CallOptions& options, int peer) const {
  if (peer < 0 || peer >= size_) {
    Misuse(call, options, "there is no rank " + std::to_string(peer));
  }
}

WorkPtr Comm::AllGather(at::Tensor out, at::Tensor in, CallOptions options) {
  out = Flat(Call::kAllGather, options, out);
  in = Flat(Call::kAllGather, options, in);
  CheckPair(Call::kAllGather, options, out, in, size_);
  if (size_ == 1 || in.numel() == 0) {
    CopyTo(out, in);
    return Done();
  }
  CallContext context = Prepare(Call::kAllGather, std::move(options), out);
  return Observed(DoAllGather(std::move(out), std::move(in), std::move(context)));
}

WorkPtr Comm::ReduceScatter(at::Tensor out, at::Tensor in, Reduce reduce, CallOptions options) {
  out = Flat(Call::kReduceScatter, options, out);
  in = Flat(Call::kReduceScatter, options, in);
  CheckPair(Call::kReduceScatter, options, in, out, size_);
  CheckReduce(Call::kReduceScatter, options, in, reduce);
  if (size_ == 1 || out.numel() == 0) {
    CopyTo(out, in);
    return Done();
  }
  CallContext context = Prepare(Call::kReduceScatter, std::move(options), in, static_cast<int64_t>(reduce));
  return Observed(DoReduceScatter(std::move(out), std::move(in), reduce, std::move(context)));
}

WorkPtr Comm::AllReduce(at::Tensor t, Reduce reduce, CallOptions options) {
  t = Flat(Call::kAllReduce, options, t);
  CheckReduce(Call::kAllReduce, options, t, reduce);
  if (size_ == 1 || t.numel() == 0) {
    return Done();
  }
  CallContext context = Prepare(Call::kAllReduce, std::move(options), t, static_cast<int64_t>(reduce));
  return Observed(DoAllReduce(std::move(t), reduce, std::move(context)));
}

WorkPtr Comm::AllToAll(at::Tensor out, at::Tensor in, CallOptions options) {
  out = Flat(Call::kAllToAll, options, out);
  in = Flat(Call::kAllToAll, options, in);
  CheckPair(Call::kAllToAll, options, out, in, 1);
  if (in.numel() % size_ != 0) {
    Misuse(Call::kAllToAll, options, std::to_string(in.numel()) + " elements do not divide by the ranks");
  }
  if (size_ == 1 || in.numel() == 0) {
    CopyTo(out, in);
    return Done();
  }
  CallContext context = Prepare(Call::kAllToAll, std::move(options), in);
  return Observed(DoAllToAll(std::move(out), std::move(in), std::move(context)));
}

WorkPtr Comm::Broadcast(at::Tensor t, int root, CallOptions options) {
  t = Flat(Call::kBroadcast, options, t);
  CheckPeer(Call::kBroadcast, options, root);
  if (size_ == 1 || t.numel() == 0) {
    return Done();
  }
  CallContext context = Prepare(Call::kBroadcast, std::move(options), t, root);
  return Observed(DoBroadcast(std::move(t), root, std::move(context)));
}

WorkPtr Comm::Send(at::Tensor t, int to, int tag, CallOptions options) {
  t = Flat(Call::kSend, options, t);
  CheckPeer(Call::kSend, options, to);
  if (to == rank_ || tag < 0 || tag >= 1 << 15) {
    Misuse(Call::kSend, options, "a rank does not send to itself, and tags are 0 to 32767");
  }
  if (t.numel() == 0) {
    return Done();
  }
  CallContext context = Prepare(Call::kSend, std::move(options), t);
  return Observed(DoSend(std::move(t), to, tag, std::move(context)));
}

WorkPtr Comm::Recv(at::Tensor t, int from, int tag, CallOptions options) {
  t = Flat(Call::kRecv, options, t);
  CheckPeer(Call::kRecv, options, from);
  if (from == rank_ || tag < 0 || tag >= 1 << 15) {
    Misuse(Call::kRecv, options, "a rank does not receive from itself, and tags are 0 to 32767");
  }
  if (t.numel() == 0) {
    return Done();
  }
  CallContext context = Prepare(Call::kRecv, std::move(options), t);
  return Observed(DoRecv(std::move(t), from, tag, std::move(context)));
}

void Comm::Barrier(CallOptions options) {
  if (size_ > 1) {
    Observed(DoBarrier(Prepare(Call::kBarrier, std::move(options), {})))->Wait();
  }
}

std::unique_ptr<Comm> Comm::Split(int color, int key, CallOptions options) {
  const int sequence = splits_++;
  if (options.label.empty()) {
    options.label = "split of " + name_;
  }
  // Everyone learns everyone's color and key; the groups follow without another message.
  at::Tensor mine = at::tensor({static_cast<int64_t>(color), static_cast<int64_t>(key)}, at::kLong).to(memory());
  at::Tensor all = at::empty({size_, 2}, mine.options());
  AllGather(all, mine, options)->Wait();
  all = all.to(at::kCPU);
  const auto table = all.accessor<int64_t, 2>();
  std::vector<int> members;
  for (int r = 0; r < size_; ++r) {
    if (color >= 0 && table[r][0] == color) {
      members.push_back(r);
    }
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) { return table[a][1] < table[b][1]; });
  if (options.deadline.count() <= 0) {
    options.deadline = default_deadline_;
  }
  std::unique_ptr<Comm> group = DoSplit(members, color, sequence, CallContext{options});
  if (group) {
    group->set_default_deadline(default_deadline_);
    group->set_observer(observer_);
  }
  return group;
}

void Comm::Abort(const std::string& reason) {
  if (!aborted_.exchange(true) && size_ > 1) {
    DoAbort(reason);
  }
}

Status Comm::Close(std::chrono::milliseconds deadline) {
  if (size_ == 1 || aborted_.load()) {
    return {};
  }
  try {
    Barrier({deadline, "close"});
    closed_ = true;
  } catch (const CommError& e) {
    Abort();
    return Fail(e.kind() == CommError::Kind::kDeadline ? ErrorCode::kDeadlineExceeded : ErrorCode::kUnavailable,
                e.what());
  }
  return {};
}

int64_t Comm::payload_bytes() const {
  int64_t sum = 0;
  for (const auto& bytes : payload_) {
    sum += bytes.load(std::memory_order_relaxed);
  }
  return sum;
}

}  // namespace trainyard::dist
