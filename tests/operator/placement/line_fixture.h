// Gangs that wait and gangs that run, in a few words, and the yard that they share.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "operator/placement/line.h"
#include "tests/operator/placement/yard_fixture.h"

namespace trainyard::placement {

struct Scene {
  static constexpr const char* kProduct = "H100-SXM";
  const TimePoint now{std::chrono::hours(500'000)};

  // `nodes` of 8 GPUs, four to a rack.
  explicit Scene(int nodes) {
    for (int i = 0; i < nodes; ++i) Node("n" + std::to_string(i), 8, "r" + std::to_string(i / 4));
  }

  void Node(const std::string& name, int64_t gpus, const std::string& rack,
            const std::string& product = "NVIDIA-H100-80GB-HBM3") {
    snapshots.push_back(MakeNode(name, gpus, rack, "z", product));
  }
  // Who is called first has waited longest.
  WaitingGang& Waits(const std::string& uid, int64_t gpus, int64_t per_node, int64_t priority = 0) {
    WaitingGang& gang = waiting.emplace_back();
    gang.uid = uid;
    gang.name = "default/" + uid;
    gang.priority = priority;
    gang.since = now - std::chrono::hours(100) + std::chrono::seconds(waiting.size());
    gang.request.gpus = gpus;
    gang.request.per_node = per_node;
    gang.request.products = {kProduct};
    return gang;
  }
  RunningGang& Runs(const std::string& uid, std::vector<std::pair<std::string, int64_t>> holds, int64_t priority = 0) {
    RunningGang& gang = running.emplace_back();
    gang.uid = uid;
    gang.name = "default/" + uid;
    gang.priority = priority;
    for (const auto& [node, gpus] : holds) gang.holds.push_back({uid, 1, node, gpus});
    gang.placed_at = gang.saved_at = now - std::chrono::hours(10);
    return gang;
  }

  Yard Build() const {
    std::vector<Booking> claims;
    for (const RunningGang& gang : running) claims.insert(claims.end(), gang.holds.begin(), gang.holds.end());
    return Yard::Build(snapshots, pods, claims, kRackOptions);
  }
  Line Form() const { return FormLine(Build(), waiting, running, now); }

  std::vector<api::NodeSnapshot> snapshots;
  std::vector<api::PodSnapshot> pods;
  std::vector<WaitingGang> waiting;
  std::vector<RunningGang> running;
};

inline int64_t Sum(const std::map<std::string, int64_t>& gpus) {
  int64_t sum = 0;
  for (const auto& [node, count] : gpus) sum += count;
  return sum;
}

}  // namespace trainyard::placement
