// The connections of one group: Gloo's point-to-point messages between its ranks, and nothing else of c10d. The
// collectives are built on them in gloo_comm.cpp: straight into the callers' buffers (Gloo's own all-gather and
// all-to-all go through copies) and with a deadline that holds to the millisecond.
// Thread-safety: all methods may be called from any thread.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <ATen/ATen.h>

#include "operator/base/error.h"
#include "trainer/dist/gloo_comm.h"
#include "trainer/dist/rendezvous.h"

namespace trainyard::dist {

// One message under way. It keeps the tensor alive; the group must outlive it.
class GlooMessage {
 public:
  virtual ~GlooMessage() = default;
  // Blocks until the buffer may be used again. Throws a std::exception when the peer is lost, the deadline passes or
  // the group is closed.
  virtual void Wait(SteadyTime deadline) = 0;
};

class GlooGroup {
 public:
  virtual ~GlooGroup() = default;
  // `t`: flat uint8. Messages between two ranks match by tag in [0, 2^31), then by order. Throw when the group is
  // closed or the peer known to be lost.
  virtual std::unique_ptr<GlooMessage> Send(const at::Tensor& t, int to, uint32_t tag) = 0;
  virtual std::unique_ptr<GlooMessage> Recv(const at::Tensor& t, int from, uint32_t tag) = 0;
  // Address, as digits, to which this rank is bound for its peers.
  virtual const std::string& host() const = 0;
  // Ends all waits and closes all connections; the peers see it at once.
  virtual void Close() = 0;
  // Another group over the same store; every member calls it with the same prefix. Throws.
  virtual std::unique_ptr<GlooGroup> Subgroup(const std::string& prefix, int rank, int size,
                                              std::chrono::milliseconds timeout) = 0;
};

// Blocks until all ranks are connected. Errors: as ConnectGloo.
Result<std::unique_ptr<GlooGroup>> FormGlooGroup(const Rendezvous& rendezvous);

}  // namespace trainyard::dist
