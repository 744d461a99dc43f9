// Comm over TCP with Gloo, for CPU tensors. Rank 0 serves the key-value store at which the ranks find each other.
// Thread-safety: as Comm. Each group runs three threads: Gloo's sockets, Gloo's (idle) worker, and one that makes our
// calls in order; two more of the process serve the monitor (trainer/dist/monitor.h).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "operator/base/error.h"
#include "trainer/dist/comm.h"

namespace trainyard::dist {

struct Rendezvous {
  std::string host;    // where rank 0's store listens, as the other ranks reach it: a name or an address
  int port = 0;        // of that store
  std::string prefix;  // "<uid>/<attempt>/<round>": keeps keys of another life of the job apart
  int rank = 0;
  int world = 1;
  std::string bind_host;  // address of this rank that its peers can reach; empty: the one from which it reaches `host`
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  // for all ranks to come together
  std::chrono::milliseconds deadline = std::chrono::minutes(5);  // of the first calls, once they have
  // Unless empty, told every `say_every` what is in the way, one line: who reads the log shall not have to guess.
  std::function<void(const std::string&)> say;
  std::chrono::milliseconds say_every = std::chrono::seconds(10);
  // Unless empty, the flight record of this rank (trainer/contract/flight_record.h).
  std::string record_file;
};

// Blocks until all ranks are connected. Names that do not resolve yet and a store that does not listen yet are tried
// again until the timeout. c10d's log is silenced below errors unless TORCH_CPP_LOG_LEVEL is set, and SIGPIPE is
// ignored from here on unless it has a handler. Reduce-scatter is an all-to-all and a sum in rank order (Gloo's own
// reduces everything everywhere), so Reduce::kSum is kOrderedSum here. Errors: kInvalidArgument (ranks or port out of
// range), kAlreadyExists (the port is taken on rank 0; names it), kDeadlineExceeded (not all ranks came), kUnavailable
// (anything else on the network).
Result<std::unique_ptr<Comm>> ConnectGloo(const Rendezvous& rendezvous);

}  // namespace trainyard::dist
