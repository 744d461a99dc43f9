// What `trainyard top` reads, how it reads it, and what it says when it may not.
#include "operator/cli/top/read_cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/cli/top/scenes.h"

namespace trainyard::cli {
namespace {

using cluster::Kind;
using testing::HasSubstr;

Result<ClusterView> ReadOf(ListedObjects& objects) {
  ListingCluster cluster(objects);
  return ReadCluster(cluster);
}

TEST(ReadCluster, ReadsEveryPageAndWritesNothing) {
  ListedObjects scene = LargeScene(100, 12);
  const size_t nodes = scene.objects[Kind::kNode].size();
  const auto view = ReadOf(scene);
  ASSERT_TRUE(view.has_value()) << view.error().message;
  EXPECT_EQ(view->nodes.size(), nodes);
  EXPECT_EQ(scene.pages[Kind::kNode], 3);
  EXPECT_EQ(view->pods.size(), scene.objects[Kind::kPod].size());
  EXPECT_EQ(scene.writes, 0);
  EXPECT_THAT(view->notes, testing::IsEmpty());
}

TEST(ReadCluster, AListThatExpiredIsReadAnewAndNothingTwice) {
  ListedObjects scene = LargeScene(100, 12);
  scene.expire[Kind::kNode] = 2;
  const auto view = ReadOf(scene);
  ASSERT_TRUE(view.has_value()) << view.error().message;
  EXPECT_EQ(view->nodes.size(), scene.objects[Kind::kNode].size());
  scene.expire[Kind::kNode] = 100;
  EXPECT_EQ(ReadOf(scene).error().code, ErrorCode::kGone);
}

TEST(ReadCluster, PodsThatHoldNothingOfANodeAreNotKept) {
  ListedObjects scene = SceneOfTheDocs();
  nlohmann::json ended = PodObject("research", "ended", "h100-2-2", 1);
  ended["status"]["phase"] = "Succeeded";
  scene.Add(Kind::kPod, ended);
  nlohmann::json waiting = PodObject("research", "waiting", "", 1);
  waiting["spec"].erase("nodeName");
  waiting["status"]["phase"] = "Pending";
  scene.Add(Kind::kPod, waiting);
  const auto view = ReadOf(scene);
  ASSERT_TRUE(view.has_value()) << view.error().message;
  ASSERT_EQ(view->pods.size(), 1u);
  EXPECT_EQ(view->pods[0].name, "notebook-0");
}

TEST(ReadCluster, ARightThatIsMissingIsNamed) {
  const Error forbidden{ErrorCode::kPermissionDenied, "list pods: pods is forbidden: User \"ada\" cannot list"};
  ListedObjects scene = SceneOfTheDocs();
  scene.refused[Kind::kPod] = forbidden;
  const auto view = ReadOf(scene);
  ASSERT_FALSE(view.has_value());
  EXPECT_EQ(view.error().code, ErrorCode::kPermissionDenied);
  EXPECT_THAT(view.error().message, testing::StartsWith("no right to list pods of all namespaces: "));
  EXPECT_THAT(view.error().message, HasSubstr("User \"ada\" cannot list"));
  EXPECT_EQ(view.error().message.find('\n'), std::string::npos);
  scene.refused = {{Kind::kNode, forbidden}};
  EXPECT_THAT(ReadOf(scene).error().message, testing::StartsWith("no right to list nodes: "));
}

TEST(ReadCluster, WithoutPriorityClassesAllCountAsOneAndANoteSaysSo) {
  ListedObjects scene = SceneOfTheDocs();
  scene.refused[Kind::kPriorityClass] = {ErrorCode::kPermissionDenied, "list priorityclasses: forbidden"};
  const auto view = ReadOf(scene);
  ASSERT_TRUE(view.has_value()) << view.error().message;
  EXPECT_THAT(view->priority_classes, testing::IsEmpty());
  EXPECT_THAT(view->notes, testing::ElementsAre(HasSubstr("priorities are not known")));
}

TEST(ReadCluster, AClusterWithoutOurCrdStillHasAYard) {
  ListedObjects scene = SceneOfTheDocs();
  scene.refused[Kind::kTrainingJob] = {ErrorCode::kNotFound, "the server could not find the requested resource"};
  const auto view = ReadOf(scene);
  ASSERT_TRUE(view.has_value()) << view.error().message;
  EXPECT_EQ(view->nodes.size(), 18u);
  EXPECT_THAT(view->notes, testing::ElementsAre(HasSubstr("CRD is not installed")));
}

TEST(ReadCluster, ObjectsThatCannotBeReadAreCountedAndNamed) {
  ListedObjects scene = SceneOfTheDocs();
  scene.Add(Kind::kNode, {{"metadata", {{"name", "odd"}, {"labels", {{"a", 1}}}}}});
  nlohmann::json job = WaitingJob("default", "newer", 8, 8, "H100-SXM", 1);
  job["spec"]["gpus"]["from"] = "the future";
  scene.Add(Kind::kTrainingJob, job);
  const auto view = ReadOf(scene);
  ASSERT_TRUE(view.has_value()) << view.error().message;
  EXPECT_THAT(view->notes, testing::ElementsAre(testing::AllOf(HasSubstr("1 Node cannot be read"), HasSubstr("odd")),
                                                testing::AllOf(HasSubstr("default/newer"), HasSubstr("from"))));
}

}  // namespace
}  // namespace trainyard::cli
