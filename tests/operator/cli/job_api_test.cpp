#include "operator/cli/run/job_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/api/json.h"
#include "operator/api/yaml.h"
#include "operator/cli/client.h"
#include "tests/operator/cli/stored_jobs.h"
#include "tests/operator/cli/temporary_directory.h"

namespace trainyard::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class JobApiTest : public testing::Test {
 protected:
  JobApiTest() {
    json job = api::LoadYaml(kSmallJob, "job")->front();
    job["metadata"]["namespace"] = "default";
    cluster_.Store(job);
  }
  std::pair<int, json> Call(const std::string& method, const std::string& url, const std::string& body = "",
                            const std::string& type = "application/merge-patch+json") {
    http::Response response =
        handler_({.method = method, .url = url, .headers = {{"Content-Type", type}}, .body = body});
    return {response.status, json::parse(response.body)};
  }
  std::pair<int, json> Patch(const json& patch) { return Call("PATCH", JobPath("default", "tiny"), patch.dump()); }

  StoredJobs cluster_;
  http::Handler handler_ = MakeJobApi(cluster_);
};

TEST_F(JobApiTest, ServesTheListAndOneJob) {
  for (const std::string& path : {JobsPath(), JobsPath("default")}) {
    auto [status, list] = Call("GET", path);
    EXPECT_EQ(status, 200);
    EXPECT_EQ(list["kind"], "TrainingJobList");
    ASSERT_EQ(list["items"].size(), 1u);
  }
  EXPECT_TRUE(Call("GET", JobsPath("other")).second["items"].empty());
  EXPECT_EQ(Call("GET", JobPath("default", "tiny")).second["metadata"]["name"], "tiny");
}

TEST_F(JobApiTest, AnswersAsAnApiServerDoesToWhatIsNotThere) {
  auto [status, body] = Call("GET", JobPath("default", "other"));
  EXPECT_EQ(status, 404);
  EXPECT_EQ(body["kind"], "Status");
  EXPECT_EQ(body["reason"], "NotFound");
  for (const char* path : {"/", "/apis", "/apis/trainyard.dev/v1alpha1/namespaces//trainingjobs",
                           "/apis/trainyard.dev/v1alpha1/namespaces/default/pods",
                           "/apis/trainyard.dev/v1alpha1/namespaces/default/trainingjobs/tiny/status"}) {
    EXPECT_EQ(Call("GET", path).first, 404) << path;
  }
  EXPECT_EQ(Call("DELETE", JobPath("default", "tiny")).first, 405);
  EXPECT_EQ(Call("PATCH", JobsPath("default")).first, 405);
}

TEST_F(JobApiTest, PatchesTheSpec) {
  auto [status, job] = Patch({{"spec", {{"gpus", {{"count", 4}}}}}});
  EXPECT_EQ(status, 200) << job;
  EXPECT_EQ(job["spec"]["gpus"]["count"], 4);
  EXPECT_EQ(cluster_.jobs.begin()->second["spec"]["gpus"]["count"], 4);
}

TEST_F(JobApiTest, TriesAgainWhenAnotherWriterCameInBetween) {
  int conflicts = 0;
  cluster_.before_replace = [&] {
    if (conflicts++ > 0) return;
    json job = cluster_.jobs.begin()->second;
    job["status"]["reason"] = "newer";
    cluster_.Store(job);
  };
  EXPECT_EQ(Patch({{"spec", {{"suspend", true}}}}).first, 200);
  EXPECT_EQ(conflicts, 2);
  EXPECT_EQ(cluster_.jobs.begin()->second["status"]["reason"], "newer");
}

TEST_F(JobApiTest, SaysInOneLineWhatIsWrongWithAPatch) {
  struct Case {
    json patch;
    const char* message;
  };
  for (const Case& c :
       {Case{{{"spec", {{"gpus", {{"count", 9}}}}}},
             "tiny: spec.gpus.count: 9 is more than spec.training.globalBatchSize 8"},
        Case{{{"spec", {{"gpus", {{"cuont", 2}}}}}}, "tiny: spec.gpus.cuont: unknown field; did you mean 'count'?"},
        Case{{{"spec", {{"training", {{"seed", 2}}}}}}, "tiny: spec.training.seed: cannot change once"},
        Case{{{"spec", nullptr}}, "tiny: spec: is required"},
        Case{{{"metadata", {{"name", "other"}}}}, "tiny: metadata: name and namespace cannot change"}}) {
    auto [status, body] = Patch(c.patch);
    EXPECT_EQ(status, 422) << c.message;
    EXPECT_THAT(body["message"].get<std::string>(), HasSubstr(c.message));
  }
}

TEST_F(JobApiTest, LeavesAFinishedJobAlone) {
  cluster_.jobs.begin()->second["status"]["phase"] = "Succeeded";
  auto [status, body] = Patch({{"spec", {{"gpus", {{"count", 1}}}}}});
  EXPECT_EQ(status, 422);
  EXPECT_THAT(body["message"].get<std::string>(), HasSubstr("the job is Succeeded and cannot change any more"));
}

TEST_F(JobApiTest, RefusesBodiesThatAreNoPatch) {
  EXPECT_EQ(Call("PATCH", JobPath("default", "tiny"), "{", "application/merge-patch+json").first, 400);
  EXPECT_EQ(Call("PATCH", JobPath("default", "tiny"), "[]").first, 400);
  EXPECT_EQ(Call("PATCH", JobPath("default", "tiny"), "{}", "application/json").first, 415);
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "{\"a\":";
  deep += "1" + std::string(100'000, '}');
  EXPECT_EQ(Call("PATCH", JobPath("default", "tiny"), deep).first, 400);
}

}  // namespace
}  // namespace trainyard::cli
