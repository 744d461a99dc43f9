// One request in the hands of a fault: what it may ask the API server, and how it may answer the operator, down to the
// single byte. Thread-safety: one thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tests/cluster/faults/fault_proxy.h"
#include "tests/cluster/faults/upstream.h"
#include "tests/cluster/faults/wire.h"

namespace trainyard::faults {

class Exchange {
 public:
  Exchange(FaultProxy& proxy, size_t index, int client, Call call, std::string method, Head head);

  const Call& call() const { return call_; }
  // Sends the request on, with another target if given. Nothing: the API server cannot be reached.
  std::optional<Head> Forward(const std::string& target = "");
  // What has come of the API server's answer; nullopt at its end, or when the operator has hung up.
  std::optional<std::string> Next();
  std::string Rest();  // all that is left of it

  // ---- to the operator
  bool SendHead(int status, const http::Headers& headers, std::optional<size_t> length);  // no length: chunked
  bool SendChunk(const std::string& bytes);
  bool EndChunks();
  bool SendRaw(const std::string& bytes);
  // A whole answer.
  void Answer(int status, const std::string& body, http::Headers headers = {});
  // The answer of the API server, unharmed.
  void Relay();
  // Resets the connection: what was sent may arrive, nothing more will.
  void Reset();
  // Does nothing until the operator hangs up, the fault is removed or the proxy ends.
  void Hang();
  bool Removed() const;  // the fault is no longer scripted

  bool closed() const { return closed_; }

 private:
  bool ClientGone();

  FaultProxy& proxy_;
  const size_t index_;  // in the record
  const int client_;
  const Call call_;
  const std::string method_;
  const Head head_;
  std::unique_ptr<Upstream> upstream_;
  std::optional<WireReader> reader_;
  bool closed_ = false;
};

}  // namespace trainyard::faults
