// What every Cluster must do as an API server does it. A parameterised suite that takes a factory: instantiate it with
//   INSTANTIATE_TEST_SUITE_P(Local, ClusterConformance, testing::Values(ClusterFactory{"Local", ...}), FactoryName);
// Nothing here needs a kubelet or a scheduler: pods that must seem to run are bound to a node that does not exist.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/cluster/cluster.h"

namespace trainyard::cluster {

struct ClusterFactory {
  std::string name;
  std::function<std::shared_ptr<Cluster>()> make;
  // A namespace in which there is nothing yet.
  std::function<std::string()> fresh_namespace;
  // A version of pods that has expired by now.
  std::function<std::string(Cluster&, const std::string& ns)> expired_version;
  std::string why_not;  // make() returned null: what is said of the tests that are skipped
};

inline std::string FactoryName(const testing::TestParamInfo<ClusterFactory>& info) { return info.param.name; }
inline void PrintTo(const ClusterFactory& factory, std::ostream* out) { *out << factory.name; }

inline nlohmann::json JobIn(const std::string& ns, const std::string& name) {
  return {{"apiVersion", "trainyard.dev/v1alpha1"},
          {"kind", "TrainingJob"},
          {"metadata", {{"namespace", ns}, {"name", name}, {"labels", {{"app", name}}}}},
          {"spec", {{"model", {{"parameters", "7B"}}}, {"parallelism", {{"strategy", "FSDP"}}}, {"image", "me/it:1"}}}};
}

inline nlohmann::json PodIn(const std::string& ns, const std::string& name, const std::string& node = "") {
  nlohmann::json pod = {
      {"apiVersion", "v1"},
      {"kind", "Pod"},
      {"metadata", {{"namespace", ns}, {"name", name}, {"labels", {{"app", name}, {"tier", "test"}}}}},
      {"spec",
       {{"restartPolicy", "Never"},
        {"schedulingGates", nlohmann::json::array()},
        {"containers", nlohmann::json::array({{{"name", "trainer"}, {"image", "none"}, {"command", {"true"}}}})}}}};
  if (!node.empty()) {
    pod["spec"]["nodeName"] = node;
  } else {
    pod["spec"]["schedulingGates"] = nlohmann::json::array({{{"name", "trainyard.dev/gang"}}});
  }
  return pod;
}

class ClusterConformance : public testing::TestWithParam<ClusterFactory> {
 protected:
  static constexpr Milliseconds kPatience{30'000};

  void SetUp() override {
    if (cluster_) return;
    // A test that has failed is not skipped by a skip, only by a fatal failure.
    if (HasFailure()) FAIL() << GetParam().why_not;
    GTEST_SKIP() << GetParam().why_not;
  }
  nlohmann::json TestJob(const std::string& name) const { return JobIn(ns_, name); }
  nlohmann::json TestPod(const std::string& name, const std::string& node = "") const { return PodIn(ns_, name, node); }

  nlohmann::json MustCreate(Kind kind, const nlohmann::json& object) {
    Result<nlohmann::json> created = cluster_->Create(kind, object);
    EXPECT_TRUE(created.has_value()) << created.error().message;
    return created ? *created : nlohmann::json::object();
  }
  // The next event that is no bookmark.
  WatchEvent MustNext(Watch& watch) {
    while (true) {
      Result<std::optional<WatchEvent>> event = watch.Next(kPatience);
      if (!event || !event->has_value()) {
        ADD_FAILURE() << (event ? "no event came" : event.error().message);
        return {WatchEvent::Type::kBookmark, std::make_shared<nlohmann::json>(nlohmann::json::object())};
      }
      if ((*event)->type != WatchEvent::Type::kBookmark) return **event;
    }
  }
  // Waits until the object has vanished: watches its kind from a list that still has it.
  void AwaitGone(Kind kind, const ObjectKey& key) {
    const Result<ObjectList> list = cluster_->List(kind, {ns_, ""});
    ASSERT_TRUE(list.has_value());
    const bool there = std::any_of(list->items.begin(), list->items.end(),
                                   [&](const Object& object) { return KeyOf(*object) == key; });
    if (!there) return;
    auto watch = cluster_->Watch(kind, {ns_, "", list->resource_version});
    ASSERT_TRUE(watch.has_value());
    while (true) {
      const WatchEvent event = MustNext(**watch);
      if (testing::Test::HasFailure()) return;
      if (event.type == WatchEvent::Type::kDeleted && KeyOf(*event.object) == key) return;
    }
  }
  static ErrorCode CodeOf(const Result<nlohmann::json>& result) {
    return result ? ErrorCode::kInternal : result.error().code;
  }

  const std::shared_ptr<Cluster> cluster_ = GetParam().make();
  const std::string ns_ = GetParam().fresh_namespace();
};

#define TRAINYARD_EXPECT_CODE(expected, call)                                                                      \
  do {                                                                                                             \
    const auto outcome = (call);                                                                                   \
    ASSERT_FALSE(outcome.has_value()) << #call " succeeded";                                                       \
    EXPECT_EQ(ErrorCodeName(outcome.error().code), ErrorCodeName(ErrorCode::expected)) << outcome.error().message; \
  } while (false)

}  // namespace trainyard::cluster
