#include "operator/local/scheduler.h"

#include <algorithm>
#include <vector>

#include <spdlog/spdlog.h>

#include "operator/cluster/snapshot.h"
#include "operator/local/object_rules.h"

namespace trainyard::local {

using cluster::Kind;
using nlohmann::json;

namespace {

constexpr const char* kPods = "pods";  // each pod takes one of these

struct Machine {
  api::NodeSnapshot node;
  std::map<std::string, int64_t> free;

  // Empty when `pod` may run here, else why not.
  std::string Objection(const api::PodSnapshot& pod) const {
    if (!node.ready) return "it is not ready";
    if (node.unschedulable) return "it is unschedulable";
    for (const auto& [resource, amount] : pod.requests) {
      const auto found = free.find(resource);
      if (amount > (found == free.end() ? 0 : found->second)) return "Insufficient " + resource;
    }
    const auto slots = free.find(kPods);
    if (slots != free.end() && slots->second < 1) return "Too many pods";
    return {};
  }
  void Take(const api::PodSnapshot& pod) {
    for (const auto& [resource, amount] : pod.requests) free[resource] -= amount;
    if (free.contains(kPods)) --free[kPods];
  }
};

}  // namespace

Scheduler::Scheduler(std::shared_ptr<Store> store, const Clock& clock)
    : store_(std::move(store)), clock_(clock), thread_([this] { Run(); }) {}

Scheduler::~Scheduler() { Stop(); }

void Scheduler::Stop() {
  {
    std::lock_guard lock(mutex_);
    exit_ = true;
    wake_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Scheduler::Poke() {
  std::lock_guard lock(mutex_);
  poked_ = true;
  wake_.notify_all();
}

void Scheduler::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return poked_ || exit_; });
    if (exit_) return;
    poked_ = false;
    lock.unlock();
    Pass();
    lock.lock();
  }
}

void Scheduler::Pass() {
  const Result<cluster::ObjectList> pods = store_->List(Kind::kPod, {});
  const Result<cluster::ObjectList> nodes = store_->List(Kind::kNode, {});
  if (!pods || !nodes) return;
  std::vector<api::PodSnapshot> waiting;
  std::vector<api::PodSnapshot> bound;
  for (const cluster::Object& object : pods->items) {
    Result<api::PodSnapshot> pod = cluster::PodFromJson(*object);
    if (!pod) {
      spdlog::warn("scheduler: {}", pod.error().message);
      continue;
    }
    if (pod->Terminal()) continue;
    if (!pod->node.empty()) {
      bound.push_back(*std::move(pod));
    } else if (!pod->gated && !pod->foreign_gate && !pod->deleting) {
      waiting.push_back(*std::move(pod));
    }
  }
  if (waiting.empty()) return;
  std::map<std::string, Machine> machines;
  for (const cluster::Object& object : nodes->items) {
    Result<api::NodeSnapshot> node = cluster::NodeFromJson(*object);
    if (!node) {
      spdlog::warn("scheduler: {}", node.error().message);
      continue;
    }
    Machine& machine = machines[node->name];
    machine.free = node->allocatable;
    machine.node = *std::move(node);
  }
  for (const api::PodSnapshot& pod : bound) {
    if (const auto found = machines.find(pod.node); found != machines.end()) found->second.Take(pod);
  }
  for (const api::PodSnapshot& pod : waiting) {
    std::map<std::string, int> objections;
    Machine* chosen = nullptr;
    for (auto& [name, machine] : machines) {
      const bool allowed = pod.pinned_node.empty() || pod.pinned_node == name;
      const std::string objection =
          allowed ? machine.Objection(pod) : "node(s) didn't match Pod's node affinity/selector";
      if (objection.empty()) {
        chosen = &machine;
        break;
      }
      ++objections[objection];
    }
    if (chosen) {
      chosen->Take(pod);
      Bind(pod, chosen->node.name);
      continue;
    }
    std::string message = "0/" + std::to_string(machines.size()) + " nodes are available";
    const char* separator = ": ";
    for (const auto& [objection, count] : objections) {
      message += separator + std::to_string(count) + " " + objection;
      separator = ", ";
    }
    Explain(pod, message + ".");
  }
}

void Scheduler::Bind(const api::PodSnapshot& pod, const std::string& node) {
  const Status status = store_->Edit(Kind::kPod, {pod.ns, pod.name}, pod.uid, [&](json& object) {
    if (object.at("metadata").contains("deletionTimestamp")) return;
    object["spec"]["nodeName"] = node;
    SetCondition(object, "PodScheduled", "True", "", "", clock_.Now());
  });
  if (!status) spdlog::debug("scheduler: {}", status.error().message);  // deleted meanwhile
}

void Scheduler::Explain(const api::PodSnapshot& pod, const std::string& message) {
  const Status status = store_->Edit(Kind::kPod, {pod.ns, pod.name}, pod.uid, [&](json& object) {
    SetCondition(object, "PodScheduled", "False", "Unschedulable", message, clock_.Now());
  });
  if (!status) spdlog::debug("scheduler: {}", status.error().message);
}

}  // namespace trainyard::local
