// A local cluster in a directory of its own, and helpers to wait for what becomes of pods.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/cluster/snapshot.h"
#include "operator/local/local_cluster.h"

namespace trainyard::local {

class LocalFixture : public testing::Test {
 protected:
  static constexpr Milliseconds kPatience{20'000};

  LocalFixture() {
    std::string directory = (std::filesystem::temp_directory_path() / "trainyard-local-XXXXXX").string();
    EXPECT_NE(mkdtemp(directory.data()), nullptr);
    directory_ = directory;
  }
  ~LocalFixture() override {
    cluster_.reset();
    std::filesystem::remove_all(directory_);
  }

  void Start(int nodes = 1, int64_t gpus_per_node = 2) {
    LocalOptions options;
    options.state_dir = directory_ / "state";
    options.nodes = nodes;
    options.gpus_per_node = gpus_per_node;
    options.volumes = claims_;
    auto started = LocalCluster::Start(options);
    ASSERT_TRUE(started.has_value()) << started.error().message;
    cluster_ = *std::move(started);
  }

  static nlohmann::json Pod(const std::string& name, const std::string& script, int gpus = 0) {
    return {{"metadata", {{"namespace", "default"}, {"name", name}}},
            {"spec",
             {{"restartPolicy", "Never"},
              {"terminationGracePeriodSeconds", 20},
              {"containers", nlohmann::json::array({{{"name", "trainer"},
                                                     {"command", {"/bin/sh", "-c", script}},
                                                     {"resources", {{"limits", {{"nvidia.com/gpu", gpus}}}}}}})}}}};
  }
  static void PinTo(nlohmann::json& pod, const std::string& node) {
    pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] = {
        {{"matchFields", {{{"key", "metadata.name"}, {"operator", "In"}, {"values", {node}}}}}}};
  }
  nlohmann::json Create(const nlohmann::json& pod) {
    Result<nlohmann::json> created = cluster_->Create(cluster::Kind::kPod, pod);
    EXPECT_TRUE(created.has_value()) << created.error().message;
    return created ? *created : nlohmann::json::object();
  }
  nlohmann::json GetPod(const std::string& name) {
    Result<nlohmann::json> pod = cluster_->Get(cluster::Kind::kPod, {"default", name});
    return pod ? *pod : nlohmann::json();
  }
  // Waits until `condition(pod)` holds, null for a pod that is gone. Returns the pod as it was then.
  nlohmann::json Await(const std::string& name, const std::function<bool(const nlohmann::json&)>& condition) {
    const auto list = cluster_->List(cluster::Kind::kPod, {});
    nlohmann::json now = nullptr;
    for (const auto& item : list->items) {
      if (cluster::KeyOf(*item).name == name) now = *item;
    }
    auto watch = cluster_->Watch(cluster::Kind::kPod, {"", "", list->resource_version});
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!condition(now)) {
      const auto left = std::chrono::ceil<Milliseconds>(deadline - std::chrono::steady_clock::now());
      const auto event = (*watch)->Next(std::max(left, Milliseconds(0)));
      if (!event || left.count() <= 0) {
        ADD_FAILURE() << "pod " << name << " did not get there: " << now.dump();
        return now;
      }
      if (!event->has_value() || cluster::KeyOf(*(*event)->object).name != name) continue;
      now = (*event)->type == cluster::WatchEvent::Type::kDeleted ? nlohmann::json() : *(*event)->object;
    }
    return now;
  }
  static std::string PhaseOf(const nlohmann::json& pod) {
    return pod.is_object() ? pod["status"]["phase"].get<std::string>() : "gone";
  }
  nlohmann::json AwaitPhase(const std::string& name, const std::string& phase) {
    return Await(name, [&](const nlohmann::json& pod) { return PhaseOf(pod) == phase; });
  }
  nlohmann::json AwaitEnd(const std::string& name) {
    const nlohmann::json pod =
        Await(name, [](const nlohmann::json& now) { return PhaseOf(now) == "Succeeded" || PhaseOf(now) == "Failed"; });
    return pod.is_object() ? pod["status"]["containerStatuses"][0]["state"]["terminated"] : pod;
  }
  // Blocks until a program has opened the pipe at `path` for writing and closed it again; returns what it wrote.
  static std::string ReadAll(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string Log(const std::string& name) { return ReadAll(cluster_->PodLog(name)); }

  std::filesystem::path directory_;
  std::map<std::string, std::filesystem::path> claims_;
  std::unique_ptr<LocalCluster> cluster_;
};

}  // namespace trainyard::local
