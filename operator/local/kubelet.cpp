#include "operator/local/kubelet.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <spdlog/spdlog.h>

#include "operator/local/free_port.h"
#include "operator/local/object_rules.h"
#include "operator/local/pod_status.h"
#include "trainer/contract/contract.h"

namespace trainyard::local {

using cluster::Kind;
using cluster::ObjectKey;
using nlohmann::json;

namespace {

// What container runtimes answer for a program that cannot be started.
constexpr int kStartErrorExit = 128;
constexpr int kLostExit = 137;

bool IsTerminal(const json& pod) {
  const std::string phase = TextAt(pod, "/status/phase"_json_pointer);
  return phase == "Succeeded" || phase == "Failed";
}

}  // namespace

Result<std::unique_ptr<Kubelet>> Kubelet::Start(std::shared_ptr<Store> store, const Clock& clock,
                                                KubeletOptions options) {
  auto watchdog = Watchdog::Start();
  if (!watchdog) return Fail(watchdog.error());
  const int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd < 0) return Fail(ErrorCode::kResourceExhausted, std::string("eventfd: ") + std::strerror(errno));
  return std::unique_ptr<Kubelet>(
      new Kubelet(std::move(store), clock, std::move(options), *std::move(watchdog), wake_fd));
}

Kubelet::Kubelet(std::shared_ptr<Store> store, const Clock& clock, KubeletOptions options,
                 std::unique_ptr<Watchdog> watchdog, int wake_fd)
    : store_(std::move(store)),
      clock_(clock),
      options_(std::move(options)),
      watchdog_(std::move(watchdog)),
      inherited_(InheritedEnvironment()),
      wake_fd_(wake_fd),
      thread_([this] { Run(); }) {}

Kubelet::~Kubelet() {
  Shutdown(Milliseconds(0));
  {
    std::lock_guard lock(mutex_);
    exit_ = true;
  }
  Poke();
  thread_.join();
  close(wake_fd_);
}

void Kubelet::Poke() {
  const uint64_t one = 1;
  // EAGAIN means that the counter is full: the thread will wake anyway.
  if (write(wake_fd_, &one, sizeof one) != sizeof one && errno != EAGAIN) {
    spdlog::error("kubelet: cannot wake: {}", std::strerror(errno));
  }
}

void Kubelet::Call(std::function<void()> task) {
  std::unique_lock lock(mutex_);
  bool done = false;
  tasks_.push_back([&] {
    task();
    std::lock_guard inner(mutex_);
    done = true;
    done_.notify_all();
  });
  lock.unlock();
  Poke();
  lock.lock();
  done_.wait(lock, [&] { return done; });
}

void Kubelet::RunTasks() {
  std::vector<std::function<void()>> tasks;
  {
    std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  for (const auto& task : tasks) task();
}

void Kubelet::KillNode(const std::string& node) {
  Call([this, node] {
    dead_nodes_.insert(node);
    std::vector<std::string> lost;
    for (const auto& [uid, container] : containers_) {
      if (container.node == node) lost.push_back(uid);
    }
    for (const std::string& uid : lost) Reap(uid);
  });
}

void Kubelet::ReviveNode(const std::string& node) {
  Call([this, node] { dead_nodes_.erase(node); });
}

void Kubelet::Shutdown(Milliseconds grace) {
  Call([this, grace] {
    draining_ = true;
    for (auto& [uid, container] : containers_) Stop(container, grace);
    KillOverdue();
  });
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return idle_; });
}

void Kubelet::Run() {
  while (true) {
    {
      std::lock_guard lock(mutex_);
      idle_ = containers_.empty();
      done_.notify_all();
      if (exit_) return;
    }
    std::vector<pollfd> fds{{wake_fd_, POLLIN, 0}};
    std::vector<std::string> uids;
    for (const auto& [uid, container] : containers_) {
      fds.push_back({container.process.fd(), POLLIN, 0});
      uids.push_back(uid);
    }
    if (poll(fds.data(), fds.size(), PollTimeout()) < 0 && errno != EINTR) {
      spdlog::error("kubelet: poll: {}", std::strerror(errno));
    }
    for (size_t i = 0; i < uids.size(); ++i) {
      if (fds[i + 1].revents != 0) Reap(uids[i]);
    }
    uint64_t pokes = 0;
    const bool poked = read(wake_fd_, &pokes, sizeof pokes) == sizeof pokes;
    RunTasks();
    if (poked) Sync();
    KillOverdue();
  }
}

int Kubelet::PollTimeout() const {
  std::optional<SteadyTime> first;
  for (const auto& [uid, container] : containers_) {
    if (container.kill_at && !container.killed && (!first || *container.kill_at < *first)) first = container.kill_at;
  }
  if (!first) return -1;
  const auto left = std::chrono::ceil<Milliseconds>(*first - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3'600'000));
}

void Kubelet::Sync() {
  const Result<cluster::ObjectList> pods = store_->List(Kind::kPod, {});
  if (!pods) return;
  std::set<std::string> present;
  for (const cluster::Object& pod : pods->items) {
    present.insert(cluster::UidOf(*pod));
    SyncPod(*pod);
  }
  std::erase_if(refused_, [&](const std::string& uid) { return !present.contains(uid); });
  // Deleted by force: nobody waits for them any more.
  for (auto& [uid, container] : containers_) {
    if (!present.contains(uid)) Stop(container, Milliseconds(0));
  }
}

void Kubelet::SyncPod(const json& pod) {
  const std::string node = TextAt(pod, "/spec/nodeName"_json_pointer);
  if (node.empty() || dead_nodes_.contains(node)) return;
  const std::string uid = cluster::UidOf(pod);
  const bool deleting = pod.at("metadata").contains("deletionTimestamp");
  if (const auto found = containers_.find(uid); found != containers_.end()) {
    if (deleting) {
      Stop(found->second, std::chrono::seconds(pod.at("metadata").value("deletionGracePeriodSeconds", int64_t{0})));
    }
    return;
  }
  // A pod on a node that is not simulated here is not ours.
  if (!store_->Get(Kind::kNode, {"", node})) return;
  if (deleting) {
    if (pod.at("metadata").value("deletionGracePeriodSeconds", int64_t{0}) == 0) return;  // finalizers hold it
    const Status status = store_->Delete(Kind::kPod, cluster::KeyOf(pod), {uid, "", 0});
    if (!status && status.error().code != ErrorCode::kNotFound) spdlog::warn("kubelet: {}", status.error().message);
  } else if (TextAt(pod, "/status/phase"_json_pointer) == "Running") {
    Report(cluster::KeyOf(pod), uid, [this](json& object) {
      SetTerminated(object, {kLostExit, 0}, "ContainerStatusUnknown", "the container was lost with its machine",
                    clock_.Now());
    });
  } else if (!IsTerminal(pod) && !draining_ && !refused_.contains(uid)) {
    StartPod(pod);
  }
}

void Kubelet::StartPod(const json& pod) {
  const ObjectKey key = cluster::KeyOf(pod);
  const std::string uid = cluster::UidOf(pod);
  const PodDirectory directory(options_.state_dir, key.name);
  Status made;
  Result<ProcessSpec> spec = Fail(ErrorCode::kInternal, "");
  try {
    made = directory.Make(pod, options_.claims, options_.state_dir / "volumes");
    if (made) {
      spec = MakeProcess(
          pod, directory,
          {options_.program_dir, inherited_, static_cast<int>(std::thread::hardware_concurrency()), MasterPort(pod)});
    }
  } catch (const json::exception& error) {
    made = Fail(ErrorCode::kInvalidArgument, std::string("pod: ") + error.what());
  }
  const Error* refusal = !made                                                ? &made.error()
                         : !spec && spec.error().code != ErrorCode::kNotFound ? &spec.error()
                                                                              : nullptr;
  if (refusal) {
    refused_.insert(uid);
    Report(key, uid,
           [&](json& object) { SetWaiting(object, "CreateContainerConfigError", refusal->message, clock_.Now()); });
    return;
  }
  Result<Process> process = Fail(ErrorCode::kInternal, "");
  if (spec) {
    process = Process::Start(*spec, watchdog_->fd());
  } else {
    process = Fail(spec.error());
  }
  if (!process) {
    Report(key, uid, [&](json& object) {
      SetTerminated(object, {kStartErrorExit, 0}, "StartError", process.error().message, clock_.Now());
    });
    return;
  }
  containers_.emplace(uid,
                      Container{key, uid, TextAt(pod, "/spec/nodeName"_json_pointer), *std::move(process), {}, false});
  Report(key, uid, [this](json& object) { SetRunning(object, clock_.Now()); });
}

void Kubelet::Stop(Container& container, Milliseconds grace) {
  const SteadyTime kill_at = std::chrono::steady_clock::now() + grace;
  if (!container.kill_at) container.process.Terminate();
  if (!container.kill_at || kill_at < *container.kill_at) container.kill_at = kill_at;
}

void Kubelet::KillOverdue() {
  const SteadyTime now = std::chrono::steady_clock::now();
  for (auto& [uid, container] : containers_) {
    if (!container.kill_at || container.killed || *container.kill_at > now) continue;
    container.process.KillGroup();
    container.killed = true;
  }
}

void Kubelet::Reap(const std::string& uid) {
  const auto found = containers_.find(uid);
  if (found == containers_.end()) return;
  Container container = std::move(found->second);
  containers_.erase(found);
  const pid_t group = container.process.group();
  const ExitStatus exit = container.process.Reap();
  watchdog_->Release(group);
  if (dead_nodes_.contains(container.node)) return;
  bool deleting = false;
  Report(container.key, uid, [&](json& object) {
    const PodDirectory directory(options_.state_dir, container.key.name);
    SetTerminated(object, exit, "", directory.ReadTerminationMessage(object, exit.exit_code != 0), clock_.Now());
    deleting = object.at("metadata").contains("deletionTimestamp");
  });
  if (!deleting) return;
  const Status status = store_->Delete(Kind::kPod, container.key, {uid, "", 0});
  if (!status && status.error().code != ErrorCode::kNotFound) spdlog::warn("kubelet: {}", status.error().message);
}

int Kubelet::MasterPort(const json& pod) {
  const std::string attempt =
      cluster::LabelOf(pod, contract::kLabelJobUid) + "/" + cluster::LabelOf(pod, contract::kLabelAttempt);
  if (attempt == "/") return FreePort();
  const auto [entry, inserted] = master_ports_.try_emplace(attempt, 0);
  if (inserted) entry->second = FreePort();
  return entry->second;
}

void Kubelet::Report(const ObjectKey& key, const std::string& uid, const std::function<void(json&)>& edit) {
  const Status status = store_->Edit(Kind::kPod, key, uid, edit);
  const bool gone =
      !status && (status.error().code == ErrorCode::kNotFound || status.error().code == ErrorCode::kConflict);
  if (!status && !gone) spdlog::warn("kubelet: {}", status.error().message);
}

}  // namespace trainyard::local
