#include "trainer/dist/gloo_exchange.h"

#include <algorithm>
#include <cstring>

#include "trainer/dist/rank_order_sum.h"

namespace trainyard::dist::gloo {
namespace {

// A reduce-scatter moves this much per peer at a time, two pieces under way: the scratch stays small and the sum of
// one piece overlaps the transfer of the next.
constexpr int64_t kPieceBytes = 1 << 20;
at::Tensor Bytes(const at::Tensor& t) { return t.view(at::kByte); }

}  // namespace

template <typename Begin>
void Exchange::Start(int peer, const Begin& begin) {
  try {
    messages_.emplace_back(peer, begin());
  } catch (...) {
    shared_.WaitsFor(task_, peer);  // whose connection it was
    throw;
  }
}

void Exchange::Recv(const at::Tensor& t, int from) {
  Start(from, [&] { return shared_.group->Recv(Bytes(t), from, tag_); });
}

void Exchange::Send(const at::Tensor& t, int to) {
  Start(to, [&] { return shared_.group->Send(Bytes(t), to, tag_); });
}

void Exchange::Wait() {
  for (auto& [peer, message] : messages_) {
    shared_.WaitsFor(task_, peer);
    message->Wait(task_.deadline());
  }
  messages_.clear();
}

void CopyBytes(const at::Tensor& to, const at::Tensor& from) {
  if (to.const_data_ptr() != from.const_data_ptr()) {
    std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
  }
}

void Gather(Shared& shared, const Task& task, uint32_t tag, const Peers& peers, const at::Tensor& out,
            const at::Tensor& in) {
  const int64_t n = in.numel();
  Exchange exchange(shared, task, tag);
  for (int i = 1; i < peers.size; ++i) {
    exchange.Recv(out.narrow(0, peers.From(i) * n, n), peers.From(i));
  }
  for (int i = 1; i < peers.size; ++i) {
    exchange.Send(in, peers.To(i));
  }
  CopyBytes(out.narrow(0, peers.rank * n, n), in);
  exchange.Wait();
}

void Scatter(Shared& shared, const Task& task, uint32_t tag, const Peers& peers, const at::Tensor& out,
             const at::Tensor& in) {
  const int64_t n = out.numel();
  const int64_t piece = std::min<int64_t>(n, kPieceBytes / static_cast<int64_t>(in.element_size()));
  const int64_t pieces = (n + piece - 1) / piece;
  struct InFlight {
    at::Tensor scratch;  // [W, piece]
    std::unique_ptr<Exchange> exchange;
  } slots[2];
  const auto start = [&](int64_t p) {
    InFlight& slot = slots[p % 2];
    if (!slot.scratch.defined()) {
      slot.scratch = at::empty({peers.size, piece}, in.options());
    }
    const int64_t lo = p * piece;
    const int64_t count = std::min(piece, n - lo);
    slot.exchange = std::make_unique<Exchange>(shared, task, tag);
    for (int i = 1; i < peers.size; ++i) {
      slot.exchange->Recv(slot.scratch[peers.From(i)].narrow(0, 0, count), peers.From(i));
    }
    for (int i = 1; i < peers.size; ++i) {
      slot.exchange->Send(in.narrow(0, peers.To(i) * n + lo, count), peers.To(i));
    }
  };
  start(0);
  for (int64_t p = 0; p < pieces; ++p) {
    if (p + 1 < pieces) {
      start(p + 1);
    }
    InFlight& slot = slots[p % 2];
    slot.exchange->Wait();
    const int64_t lo = p * piece;
    const int64_t count = std::min(piece, n - lo);
    std::vector<at::Tensor> parts;
    for (int r = 0; r < peers.size; ++r) {
      parts.push_back(r == peers.rank ? in.narrow(0, r * n + lo, count) : slot.scratch[r].narrow(0, 0, count));
    }
    RankOrderSum(out.narrow(0, lo, count), parts);
  }
}

}  // namespace trainyard::dist::gloo
