#include "tests/bench/operator/pod_watch.h"

#include <cstdio>

namespace trainyard::bench {

using nlohmann::json;

PodWatch::PodWatch(cluster::Cluster& cluster, std::string ns, std::string label_selector)
    : cluster_(cluster), ns_(std::move(ns)), selector_(std::move(label_selector)), thread_([this] { Run(); }) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return listed_; });
}

PodWatch::~PodWatch() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    if (watch_) watch_->Stop();
  }
  thread_.join();
}

void PodWatch::Run() {
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      if (stop_) return;
    }
    const auto list = cluster_.List(cluster::Kind::kPod, {.ns = ns_, .label_selector = selector_});
    if (!list) {
      std::fprintf(stderr, "operator_bench: pods cannot be listed: %s\n", list.error().message.c_str());
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      continue;
    }
    auto watch = cluster_.Watch(cluster::Kind::kPod,
                                {.ns = ns_, .label_selector = selector_, .from_version = list->resource_version});
    {
      std::lock_guard lock(mutex_);
      pods_.clear();
      counts_ = {};
      for (const auto& item : list->items) Take(*item, false);
      listed_ = true;
      Mark();
      changed_.notify_all();
      if (!watch || stop_) continue;
      watch_ = std::move(*watch);
    }
    for (;;) {
      const auto event = watch_->Next(Milliseconds(1000));
      std::lock_guard lock(mutex_);
      if (!event || stop_) break;
      if (*event && (*event)->type != cluster::WatchEvent::Type::kBookmark) {
        Take(*(*event)->object, (*event)->type == cluster::WatchEvent::Type::kDeleted);
        Mark();
        changed_.notify_all();
      }
    }
    std::lock_guard lock(mutex_);
    watch_.reset();
  }
}

void PodWatch::Count(const Pod& pod, int sign) {
  counts_.exist += sign;
  counts_.ungated += pod.ungated ? sign : 0;
  counts_.bound += pod.bound ? sign : 0;
  counts_.running += pod.running ? sign : 0;
}

void PodWatch::Take(const json& object, bool deleted) {
  const std::string uid = cluster::UidOf(object);
  const auto known = pods_.find(uid);
  if (known != pods_.end()) {
    Count(known->second, -1);
    pods_.erase(known);
  }
  if (deleted) return;
  Pod pod;
  const auto spec = object.find("spec");
  if (spec != object.end()) {
    const auto gates = spec->find("schedulingGates");
    pod.ungated = gates == spec->end() || gates->empty();
    pod.bound = !spec->value("nodeName", std::string()).empty();
  }
  const auto status = object.find("status");
  pod.running = status != object.end() && status->value("phase", std::string()) == "Running";
  Count(pod, 1);
  pods_.emplace(uid, pod);
}

void PodWatch::Mark() {
  const Instant now = std::chrono::steady_clock::now();
  const auto reach = [&](std::optional<Instant>& when, int count) {
    if (!when && wanted_ > 0 && count >= wanted_) when = now;
  };
  reach(reached_.exist, counts_.exist);
  reach(reached_.ungated, counts_.ungated);
  reach(reached_.bound, counts_.bound);
  reach(reached_.running, counts_.running);
}

std::optional<Instant> PodWatch::Await(const std::function<bool(const PodCounts&)>& condition,
                                       std::chrono::seconds timeout) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, timeout, [&] { return condition(counts_); })) return std::nullopt;
  return std::chrono::steady_clock::now();
}

void PodWatch::Reset(int n) {
  std::lock_guard lock(mutex_);
  wanted_ = n;
  reached_ = {};
}

PodWatch::Milestones PodWatch::Reached() {
  std::lock_guard lock(mutex_);
  return reached_;
}

PodCounts PodWatch::Now() {
  std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace trainyard::bench
