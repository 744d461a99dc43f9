// Binds pods without gates to the node that their affinity pins, or to any when they pin none, when that node is ready
// and has room for what they ask. Others stay Pending with a condition that says why. One thread that sleeps until the
// store changes. Thread-safety: all public members from any thread.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "operator/api/snapshot.h"
#include "operator/local/store.h"

namespace trainyard::local {

class Scheduler {
 public:
  Scheduler(std::shared_ptr<Store> store, const Clock& clock);
  ~Scheduler();  // Stop()
  // Binds nothing more; Poke() stays safe.
  void Stop();
  // Something has changed in the store.
  void Poke();

 private:
  using Amounts = std::map<std::string, int64_t>;
  void Run();
  void Pass();
  void Bind(const api::PodSnapshot& pod, const std::string& node);
  void Explain(const api::PodSnapshot& pod, const std::string& message);

  const std::shared_ptr<Store> store_;
  const Clock& clock_;
  std::mutex mutex_;  // guards the next two
  std::condition_variable wake_;
  bool poked_ = true;
  bool exit_ = false;
  std::thread thread_;
};

}  // namespace trainyard::local
