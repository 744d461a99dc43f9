// The messages of one collective over a Gloo group, and the two collectives that the others are made of.
// Thread-safety: the group's own thread (gloo_queue.h).
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "trainer/dist/gloo_queue.h"

namespace trainyard::dist::gloo {

// A rank among its peers, in the order that spreads the load: everyone sends to its right neighbour first.
struct Peers {
  int rank = 0, size = 1;
  int To(int i) const { return (rank + i) % size; }
  int From(int i) const { return (rank - i + size) % size; }
};

// All receives are posted before the first send, then awaited. Notes for whom the call waits.
class Exchange {
 public:
  Exchange(Shared& shared, const Task& task, uint32_t tag) : shared_(shared), task_(task), tag_(tag) {}
  // One contiguous tensor from or to a rank of the group. Throws a std::exception when the peer is lost.
  void Recv(const at::Tensor& t, int from);
  void Send(const at::Tensor& t, int to);
  // Blocks until all are through. Throws as GlooMessage::Wait.
  void Wait();

 private:
  template <typename Begin>
  void Start(int peer, const Begin& begin);

  Shared& shared_;
  const Task& task_;
  const uint32_t tag_;
  std::vector<std::pair<int, std::unique_ptr<GlooMessage>>> messages_;  // with the other end's rank
};

// Tensors of the same bytes. Not copy_(): that would start a second pool of compute threads under this one.
void CopyBytes(const at::Tensor& to, const at::Tensor& from);

// out [W*n] = in [n] of all; `in` may be this rank's slice of `out`.
void Gather(Shared& shared, const Task& task, uint32_t tag, const Peers& peers, const at::Tensor& out,
            const at::Tensor& in);
// out [n] = this rank's slice of in [W*n], summed in rank order; `out` may be that slice of `in`.
void Scatter(Shared& shared, const Task& task, uint32_t tag, const Peers& peers, const at::Tensor& out,
             const at::Tensor& in);

}  // namespace trainyard::dist::gloo
