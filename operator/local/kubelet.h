// Runs the pods that are bound to simulated nodes: starts each one's process, ends it when its pod is deleted, and
// reports what became of it, as one kubelet per node would. One thread starts, waits for and reaps all processes; it
// sleeps until the store changes, a process ends or a grace period is over. Thread-safety: all public members from any
// thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "operator/local/pod_process.h"
#include "operator/local/process.h"
#include "operator/local/store.h"
#include "operator/local/watchdog.h"

namespace trainyard::local {

struct KubeletOptions {
  std::filesystem::path state_dir;
  std::filesystem::path program_dir;
  std::map<std::string, std::filesystem::path> claims;
};

class Kubelet {
 public:
  static Result<std::unique_ptr<Kubelet>> Start(std::shared_ptr<Store> store, const Clock& clock,
                                                KubeletOptions options);
  ~Kubelet();  // Shutdown without grace

  // Something has changed in the store.
  void Poke();
  // The machine is dead: its processes are killed, nothing of it is reported or ended until it is revived, when pods
  // that lost their process are reported as failed. Returns when the processes are gone.
  void KillNode(const std::string& node);
  void ReviveNode(const std::string& node);
  // SIGTERM to all, SIGKILL after `grace`; starts nothing more. Returns when all have ended and were reported.
  void Shutdown(Milliseconds grace);

 private:
  using SteadyTime = std::chrono::steady_clock::time_point;
  struct Container {
    cluster::ObjectKey key;
    std::string uid;
    std::string node;
    Process process;
    std::optional<SteadyTime> kill_at;  // set once it was asked to end
    bool killed = false;
  };

  Kubelet(std::shared_ptr<Store> store, const Clock& clock, KubeletOptions options, std::unique_ptr<Watchdog> watchdog,
          int wake_fd);
  void Run();
  // Runs `task` on the thread and waits for it.
  void Call(std::function<void()> task);
  void RunTasks();
  int PollTimeout() const;
  void Sync();
  void SyncPod(const nlohmann::json& pod);
  void StartPod(const nlohmann::json& pod);
  void Stop(Container& container, Milliseconds grace);
  void KillOverdue();
  void Reap(const std::string& uid);
  int MasterPort(const nlohmann::json& pod);
  void Report(const cluster::ObjectKey& key, const std::string& uid, const std::function<void(nlohmann::json&)>& edit);

  const std::shared_ptr<Store> store_;
  const Clock& clock_;
  const KubeletOptions options_;
  const std::unique_ptr<Watchdog> watchdog_;
  const std::map<std::string, std::string> inherited_;
  const int wake_fd_;  // eventfd

  // Of the thread alone:
  std::map<std::string, Container> containers_;  // by pod UID
  std::set<std::string> refused_;                // UIDs of pods whose container could not be made
  std::set<std::string> dead_nodes_;
  std::map<std::string, int> master_ports_;  // by job UID and attempt
  bool draining_ = false;

  std::mutex mutex_;  // guards the rest
  std::condition_variable done_;
  std::vector<std::function<void()>> tasks_;
  bool exit_ = false;
  bool idle_ = true;  // no container runs
  std::thread thread_;
};

}  // namespace trainyard::local
