// A proxy between the operator and a real API server that does harm on purpose. The operator speaks plain HTTP to it on
// the loopback; it speaks TLS to the API server. Every request is recorded; the first scripted fault that matches one
// takes it over, all others are relayed byte for byte.
// Thread-safety: all members from any thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "operator/base/clock.h"
#include "operator/base/error.h"
#include "operator/kube/config.h"
#include "tests/cluster/faults/call.h"

namespace trainyard::faults {

class Exchange;

struct Fault {
  std::string name;
  std::function<bool(const Call&)> when;
  std::function<void(Exchange&)> act;
  int after = 0;  // matching calls that pass unharmed first
  int count = 1;  // calls that are harmed; -1: until it is removed
};

class FaultProxy {
 public:
  static Result<std::unique_ptr<FaultProxy>> Start(const kube::Config& upstream);
  ~FaultProxy();

  std::string url() const;  // "http://127.0.0.1:PORT"

  void Add(Fault fault);
  void Remove(const std::string& fault_name);
  // Bearer token that requests must carry, else they are answered 401; empty: any.
  void ExpectToken(const std::string& token);
  // The API server goes away: open connections are reset and new ones refused, until it is Back(). The port stays ours.
  void Away();
  void Back();
  // Resets all open connections; new ones are welcome.
  void CutAll();

  std::vector<Call> calls() const;
  size_t Count(const std::function<bool(const Call&)>& which) const;
  // Waits until `condition` holds of the record. False: timeout.
  bool Await(Milliseconds timeout, const std::function<bool(const std::vector<Call>&)>& condition) const;
  // Waits until at least `count` such calls were made.
  bool AwaitCount(Milliseconds timeout, size_t count, const std::function<bool(const Call&)>& which) const;
  // One line per call, newest last, for the message of a failed test.
  std::string Transcript(size_t last = 60) const;

 private:
  friend class Exchange;
  explicit FaultProxy(kube::Config upstream) : upstream_(std::move(upstream)) {}
  Status Listen();
  void AcceptLoop();
  void Serve(int fd);
  void CutLocked();
  size_t Record(Call call);
  void Update(size_t index, const std::function<void(Call&)>& change);
  std::function<void(Exchange&)> Choose(Call& call);
  bool Removed(const std::string& fault_name) const;

  struct Script {
    Fault fault;
    int seen = 0;
  };

  const kube::Config upstream_;
  int port_ = 0;
  mutable std::mutex mutex_;  // guards all below
  mutable std::condition_variable changed_;
  int listener_ = -1;
  bool away_ = false;
  bool stop_ = false;
  std::string token_;
  std::list<Script> scripts_;
  std::vector<Call> calls_;
  std::set<int> open_;  // sockets of the operator's connections
  std::list<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace trainyard::faults
