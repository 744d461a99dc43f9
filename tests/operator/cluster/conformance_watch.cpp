// Lists, selectors and watches.
#include "tests/operator/cluster/conformance.h"

#include <set>
#include <thread>

namespace trainyard::cluster {

using nlohmann::json;

TEST_P(ClusterConformance, ListsBySelectorAndNamespace) {
  for (const char* name : {"a", "b"}) MustCreate(Kind::kPod, TestPod(name));
  const auto names = [&](const ListOptions& options) {
    std::vector<std::string> found;
    const Result<ObjectList> list = cluster_->List(Kind::kPod, options);
    EXPECT_TRUE(list.has_value());
    for (const Object& object : list->items) found.push_back(KeyOf(*object).name);
    return found;
  };
  EXPECT_THAT(names({ns_, ""}), testing::UnorderedElementsAre("a", "b"));
  EXPECT_THAT(names({"elsewhere", ""}), testing::IsEmpty());
  EXPECT_THAT(names({ns_, "app=a"}), testing::ElementsAre("a"));
  EXPECT_THAT(names({ns_, "app!=a,tier"}), testing::ElementsAre("b"));
  EXPECT_THAT(names({ns_, "!tier"}), testing::IsEmpty());
  TRAINYARD_EXPECT_CODE(kInvalidArgument, cluster_->List(Kind::kPod, {ns_, "app in a"}));
}

TEST_P(ClusterConformance, AWatchFromAListMissesNothing) {
  MustCreate(Kind::kPod, TestPod("before"));
  const Result<ObjectList> list = cluster_->List(Kind::kPod, {ns_, ""});
  ASSERT_TRUE(list.has_value());
  json pod = MustCreate(Kind::kPod, TestPod("a"));  // between list and watch
  auto watch = cluster_->Watch(Kind::kPod, {ns_, "", list->resource_version});
  ASSERT_TRUE(watch.has_value());
  pod["metadata"]["labels"]["app"] = "changed";
  pod = *cluster_->Replace(Kind::kPod, pod);
  ASSERT_TRUE(cluster_->Delete(Kind::kPod, {ns_, "a"}, {}).has_value());

  const WatchEvent added = MustNext(**watch);
  EXPECT_EQ(added.type, WatchEvent::Type::kAdded);
  EXPECT_EQ(KeyOf(*added.object).name, "a");
  const WatchEvent modified = MustNext(**watch);
  EXPECT_EQ(modified.type, WatchEvent::Type::kModified);
  EXPECT_EQ(ResourceVersionOf(*modified.object), ResourceVersionOf(pod));
  const WatchEvent marked = MustNext(**watch);
  EXPECT_EQ(marked.type, WatchEvent::Type::kModified) << "a pod is marked even when it goes at once";
  EXPECT_TRUE((*marked.object)["metadata"].contains("deletionTimestamp"));
  const WatchEvent deleted = MustNext(**watch);
  EXPECT_EQ(deleted.type, WatchEvent::Type::kDeleted);
  EXPECT_EQ(UidOf(*deleted.object), UidOf(pod));
  EXPECT_NE(ResourceVersionOf(*deleted.object), ResourceVersionOf(pod)) << "a deletion has a version of its own";
}

TEST_P(ClusterConformance, AWatchGoesOnFromTheVersionOfAnEvent) {
  const std::string start = cluster_->List(Kind::kPod, {ns_, ""})->resource_version;
  MustCreate(Kind::kPod, TestPod("a"));
  MustCreate(Kind::kPod, TestPod("b"));
  auto first = cluster_->Watch(Kind::kPod, {ns_, "", start});
  const std::string version = ResourceVersionOf(*MustNext(**first).object);
  auto second = cluster_->Watch(Kind::kPod, {ns_, "", version});
  EXPECT_EQ(KeyOf(*MustNext(**second).object).name, "b");
}

TEST_P(ClusterConformance, ASelectorTurnsRelabellingIntoArrivalAndDeparture) {
  const std::string start = cluster_->List(Kind::kPod, {ns_, ""})->resource_version;
  auto watch = cluster_->Watch(Kind::kPod, {ns_, "app=wanted", start});
  ASSERT_TRUE(watch.has_value());
  json pod = MustCreate(Kind::kPod, TestPod("a"));
  pod["metadata"]["labels"]["app"] = "wanted";
  pod = *cluster_->Replace(Kind::kPod, pod);
  pod["metadata"]["labels"]["app"] = "unwanted";
  pod = *cluster_->Replace(Kind::kPod, pod);
  EXPECT_EQ(MustNext(**watch).type, WatchEvent::Type::kAdded);
  EXPECT_EQ(MustNext(**watch).type, WatchEvent::Type::kDeleted);
}

TEST_P(ClusterConformance, AWatchOfAnExpiredVersionIsGone) {
  const std::string old = GetParam().expired_version(*cluster_, ns_);
  auto late = cluster_->Watch(Kind::kPod, {ns_, "", old});
  if (late) {  // the server may say so at the start or in the stream
    TRAINYARD_EXPECT_CODE(kGone, (*late)->Next(kPatience));
  } else {
    EXPECT_EQ(ErrorCodeName(late.error().code), ErrorCodeName(ErrorCode::kGone));
  }
}

TEST_P(ClusterConformance, PagesTogetherAreTheWholeList) {
  std::set<std::string> made;
  for (int i = 0; i < 7; ++i) made.insert(KeyOf(MustCreate(Kind::kPod, TestPod("p" + std::to_string(i)))).name);
  std::set<std::string> found;
  std::set<std::string> versions;
  ListOptions options{ns_, "", 3};
  do {
    const Result<ObjectList> page = cluster_->List(Kind::kPod, options);
    ASSERT_TRUE(page.has_value()) << page.error().message;
    for (const Object& object : page->items) EXPECT_TRUE(found.insert(KeyOf(*object).name).second);
    versions.insert(page->resource_version);
    options.from = page->next;
  } while (!options.from.empty());
  EXPECT_EQ(found, made);
  EXPECT_EQ(versions.size(), 1u) << "all pages show the same moment";
}

TEST_P(ClusterConformance, AListOverAllNamespacesHasOurs) {
  MustCreate(Kind::kTrainingJob, TestJob("a"));
  const Result<ObjectList> all = cluster_->List(Kind::kTrainingJob, {});
  ASSERT_TRUE(all.has_value()) << all.error().message;
  EXPECT_TRUE(std::any_of(all->items.begin(), all->items.end(),
                          [&](const Object& object) { return KeyOf(*object) == ObjectKey{ns_, "a"}; }));
}

TEST_P(ClusterConformance, StopWakesAWaitingWatch) {
  auto watch = cluster_->Watch(Kind::kService, {ns_, "", ""});
  ASSERT_TRUE(watch.has_value());
  std::jthread stopper([&] { (*watch)->Stop(); });
  while (true) {
    const Result<std::optional<WatchEvent>> event = (*watch)->Next(Milliseconds(60'000));
    if (event) continue;  // a bookmark
    EXPECT_EQ(ErrorCodeName(event.error().code), ErrorCodeName(ErrorCode::kUnavailable));
    return;
  }
}

TEST_P(ClusterConformance, AQuietWatchReturnsNothing) {
  const std::string start = cluster_->List(Kind::kService, {ns_, ""})->resource_version;
  auto watch = cluster_->Watch(Kind::kService, {ns_, "", start});
  ASSERT_TRUE(watch.has_value());
  const Result<std::optional<WatchEvent>> event = (*watch)->Next(Milliseconds(20));
  ASSERT_TRUE(event.has_value());
  EXPECT_TRUE(!event->has_value() || (*event)->type == WatchEvent::Type::kBookmark);
}

}  // namespace trainyard::cluster
