#include "operator/cli/checkpoints/in_cluster.h"

#include <map>
#include <mutex>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "operator/cli/checkpoints/pod.h"
#include "operator/cli/exit_codes.h"
#include "operator/http/server.h"

namespace trainyard::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// As much of an API server as a checkpoints pod meets: one job, its pods, and what becomes of the new one.
class InCluster : public testing::Test {
 protected:
  void SetUp() override {
    auto server = http::Server::Start({}, [this](const http::Request& request) { return Answer(request); });
    ASSERT_TRUE(server) << server.error().message;
    server_ = *std::move(server);
    config_.server = "http://127.0.0.1:" + std::to_string(server_->port());
    config_.ns = "team";
    job_ = {
        {"apiVersion", "trainyard.dev/v1alpha1"},
        {"kind", "TrainingJob"},
        {"metadata", {{"name", "llama"}, {"namespace", "team"}, {"uid", "uid-1"}, {"resourceVersion", "1"}}},
        {"spec",
         {{"model", {{"parameters", "7B"}}},
          {"data", {{"format", "Text"}, {"train", json::array({{{"volume", "corpus"}, {"path", "t.txt"}}})}}},
          {"gpus", {{"count", 2}}},
          {"checkpoint", {{"volume", "checkpoints"}, {"path", "runs/llama"}}},
          {"volumes", json::array({{{"name", "corpus"}, {"persistentVolumeClaim", {{"claimName", "corpus"}}}},
                                   {{"name", "checkpoints"}, {"persistentVolumeClaim", {{"claimName", "ckpt"}}}}})}}},
        {"status", {{"trainer", {{"image", "registry/trainer:1"}, {"cpuPerGpu", "1"}, {"memoryPerGpu", "1Gi"}}}}}};
  }

  http::Response Answer(const http::Request& request) {
    std::lock_guard lock(mutex_);
    const std::string path = request.url.substr(0, request.url.find('?'));
    asked_.push_back(request.method + " " + path);
    const std::string pods = "/api/v1/namespaces/team/pods";
    const auto status = [](int code, const char* reason) {
      return http::Response::Json(
          code, json{{"kind", "Status"}, {"code", code}, {"reason", reason}, {"message", reason}}.dump());
    };
    if (path == "/apis/trainyard.dev/v1alpha1/namespaces/team/trainingjobs/llama")
      return http::Response::Json(200, job_.dump());
    if (path == pods && request.method == "GET") {
      return http::Response::Json(200, json{{"items", others_}, {"metadata", {{"resourceVersion", "1"}}}}.dump());
    }
    if (path == pods && request.method == "POST") {
      made_ = json::parse(request.body);
      return http::Response::Json(201, made_.dump());
    }
    const std::string own = made_.is_object() ? pods + "/" + made_["metadata"]["name"].get<std::string>() : "";
    if (path == own && request.method == "DELETE") return http::Response::Json(200, made_.dump());
    if (path == own) {
      json pod = made_;
      pod["status"] = statuses_.front();
      if (statuses_.size() > 1) statuses_.erase(statuses_.begin());
      return http::Response::Json(200, pod.dump());
    }
    if (path == own + "/log") return log_;
    return status(404, "NotFound");
  }

  int Run(const std::vector<std::string>& command = {"list", kDirectory}) {
    int waits = 0;
    const auto wait = [&](Milliseconds time) {
      clock_.Advance(time);
      return ++waits != interrupt_after_;
    };
    return RunInCluster(config_, flags_, command, {out_, err_, clock_, wait});
  }
  static json Ended(int code, const char* reason = "Completed", const char* message = "") {
    return {
        {"phase", code == 0 ? "Succeeded" : "Failed"},
        {"containerStatuses",
         json::array({{{"state", {{"terminated", {{"exitCode", code}, {"reason", reason}, {"message", message}}}}}}})}};
  }
  static json Waiting(const char* reason) {
    return {{"phase", "Pending"},
            {"containerStatuses", json::array({{{"state", {{"waiting", {{"reason", reason}, {"message", "why"}}}}}}})}};
  }
  bool Deleted() const {
    return !asked_.empty() && asked_.back().starts_with("DELETE /api/v1/namespaces/team/pods/llama-checkpoints-");
  }

  kube::Config config_;
  InClusterFlags flags_{.job = "llama"};
  FakeClock clock_{TimePoint(Milliseconds(0))};
  std::ostringstream out_, err_;
  int interrupt_after_ = -1;
  std::mutex mutex_;  // guards the rest
  json job_, made_, others_ = json::array();
  std::vector<json> statuses_ = {{{"phase", "Pending"}}, {{"phase", "Running"}}, Ended(0)};
  http::Response log_{200, {}, "STEP\n100\ntrainyard: skipped step-00000200 is bad\n"};
  std::vector<std::string> asked_;
  std::unique_ptr<http::Server> server_;  // last: its threads use the rest
};

TEST_F(InCluster, WhatIsNotUtf8IsRefused) {
  EXPECT_EQ(Run({"import", "models:\xff"}), kExitBadInput);
  EXPECT_EQ(err_.str(), "trainyard: \"models:\xef\xbf\xbd\" is not UTF-8: a pod cannot be told such a name\n");
  EXPECT_TRUE(asked_.empty());
}

TEST_F(InCluster, APodMountsTheVolumeRunsTheCommandAndGoes) {
  others_ = json::array(
      {{{"metadata", {{"name", "llama-0"}}}, {"spec", {{"nodeName", "node-7"}}}, {"status", {{"phase", "Running"}}}}});
  job_["spec"]["podTemplate"] = {
      {"spec", {{"imagePullSecrets", json::array({{{"name", "registry"}}})}, {"nodeSelector", {{"pool", "a"}}}}}};
  EXPECT_EQ(Run({"show", kDirectory, "--json"}), kExitOk) << err_.str();
  EXPECT_EQ(out_.str(), "STEP\n100\n");
  EXPECT_EQ(err_.str(), "trainyard: skipped step-00000200 is bad\n") << "what was said on standard error";
  EXPECT_TRUE(Deleted());
  const json& spec = made_["spec"];
  const json& container = spec["containers"][0];
  EXPECT_EQ(container["command"],
            (json{"trainyard", "checkpoints", "show", "/volumes/checkpoints/runs/llama", "--json"}));
  EXPECT_EQ(container["image"], "registry/trainer:1");
  EXPECT_EQ(container["volumeMounts"].size(), 1u);
  EXPECT_EQ(spec["volumes"],
            json::array({{{"name", "checkpoints"}, {"persistentVolumeClaim", {{"claimName", "ckpt"}}}}}));
  EXPECT_EQ(spec["securityContext"]["runAsNonRoot"], true);
  EXPECT_EQ(container["securityContext"]["readOnlyRootFilesystem"], true);
  const json& terms =
      spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
  EXPECT_EQ(terms[0]["matchFields"][0]["values"], json::array({"node-7"})) << "a volume of one node is there";
  EXPECT_EQ(spec["imagePullSecrets"][0]["name"], "registry") << "as the job's own pods";
  EXPECT_EQ(spec["nodeSelector"]["pool"], "a");
  EXPECT_EQ(spec["tolerations"][0]["key"], "nvidia.com/gpu");
  EXPECT_EQ(made_["metadata"]["ownerReferences"][0]["uid"], "uid-1");
  EXPECT_FALSE(made_["metadata"]["ownerReferences"][0].contains("controller")) << "it is no pod of an attempt";
  EXPECT_FALSE(made_["metadata"]["labels"].contains("trainyard.dev/job-uid"));
  EXPECT_FALSE(container["resources"].contains("limits")) << "no GPU";
}

TEST_F(InCluster, PlacesOnVolumesOfTheJobAreMountedOnce) {
  EXPECT_EQ(Run({"export", kDirectory, kOnVolume + "checkpoints:out/hf", "--to", "huggingface"}), kExitOk)
      << err_.str();
  const json& container = made_["spec"]["containers"][0];
  EXPECT_EQ(container["command"], (json{"trainyard", "checkpoints", "export", "/volumes/checkpoints/runs/llama",
                                        "/volumes/checkpoints/out/hf", "--to", "huggingface"}));
  EXPECT_EQ(made_["spec"]["volumes"].size(), 1u);
  EXPECT_EQ(container["volumeMounts"].size(), 1u);

  job_["spec"].erase("checkpoint");  // an import asks for none
  EXPECT_EQ(Run({"import", kOnVolume + "corpus:hf", kOnVolume + "checkpoints:base"}), kExitOk) << err_.str();
  EXPECT_EQ(made_["spec"]["containers"][0]["command"],
            (json{"trainyard", "checkpoints", "import", "/volumes/corpus/hf", "/volumes/checkpoints/base"}));
  EXPECT_EQ(made_["spec"]["volumes"].size(), 2u);

  EXPECT_EQ(Run({"import", kOnVolume + "models:hf", kOnVolume + "checkpoints:base"}), kExitBadInput);
  EXPECT_THAT(err_.str(), HasSubstr("job team/llama has no volume models"));
}

TEST_F(InCluster, WhatKilledRunsHaveLeftGoesWithTheNextOne) {
  clock_.Advance(Milliseconds(3'600'000));
  const auto left = [&](const char* name, const char* owner, const char* finished) {
    json pod = {{"metadata", {{"name", name}, {"ownerReferences", json::array({{{"uid", owner}}})}}},
                {"status", Ended(0)}};
    pod["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"] = finished;
    others_.push_back(pod);
  };
  left("old", "uid-1", "1970-01-01T00:30:00Z");
  left("read-still", "uid-1", "1970-01-01T00:55:00Z");
  left("of-another-job", "uid-2", "1970-01-01T00:30:00Z");
  others_.push_back({{"metadata", {{"name", "runs"}, {"ownerReferences", json::array({{{"uid", "uid-1"}}})}}},
                     {"status", {{"phase", "Running"}}}});
  EXPECT_EQ(Run(), kExitOk) << err_.str();
  std::vector<std::string> deleted;
  for (const std::string& call : asked_) {
    if (call.starts_with("DELETE ")) deleted.push_back(call.substr(call.rfind('/') + 1));
  }
  EXPECT_THAT(deleted, testing::ElementsAre("old", testing::StartsWith("llama-checkpoints-")));
  EXPECT_EQ(made_["spec"]["activeDeadlineSeconds"], 86'400) << "one that hangs does not stay";
}

TEST_F(InCluster, TheExitCodeIsThatOfTheCommand) {
  statuses_ = {Ended(1)};
  log_.body = "step-00000200: bad: model/shard-00001: the file is missing\n";
  EXPECT_EQ(Run({"verify", kDirectory}), kExitJobFailed);
  EXPECT_THAT(out_.str(), HasSubstr("the file is missing"));
  EXPECT_TRUE(Deleted());
  EXPECT_THAT(made_["spec"].value("affinity", json::object()).dump(), testing::Not(HasSubstr("matchFields")))
      << "the job does not run";
}

TEST_F(InCluster, CtrlCDeletesThePod) {
  statuses_ = {{{"phase", "Running"}}};
  interrupt_after_ = 3;
  EXPECT_EQ(Run(), kExitInterrupted);
  EXPECT_TRUE(Deleted());
  EXPECT_EQ(err_.str(), "trainyard: interrupted\n");
}

TEST_F(InCluster, APodThatCannotRunIsExplainedAndGoes) {
  statuses_ = {Waiting("ContainerCreating"), Waiting("ImagePullBackOff")};
  EXPECT_EQ(Run(), kExitBadInput);
  EXPECT_THAT(err_.str(), HasSubstr("its pod cannot run: ImagePullBackOff: why"));
  EXPECT_TRUE(Deleted());
  err_.str("");
  statuses_ = {
      {{"phase", "Pending"},
       {"conditions", json::array({{{"type", "PodScheduled"}, {"status", "False"}, {"message", "0/3 nodes"}}})}}};
  EXPECT_EQ(Run(), kExitUnreachable);
  EXPECT_THAT(err_.str(), HasSubstr("does not run after 120 s: 0/3 nodes"));
  EXPECT_TRUE(Deleted());
  err_.str("");
  statuses_ = {Ended(128, "StartError", "exec: \"trainyard\": executable file not found in $PATH")};
  EXPECT_EQ(Run(), kExitBadInput);
  EXPECT_THAT(err_.str(),
              HasSubstr("the image has no program trainyard (exec: \"trainyard\": executable file not found"));
  EXPECT_THAT(err_.str(), HasSubstr("name one that has with --image"));
}

TEST_F(InCluster, JobsThatHaveNothingToShowAreRefusedBeforeAPodIsMade) {
  flags_.job = "nobody";
  EXPECT_EQ(Run(), kExitNotFound);
  EXPECT_EQ(err_.str(), "trainyard: there is no TrainingJob team/nobody\n");
  flags_.job = "llama";
  err_.str("");
  job_["status"].erase("trainer");
  EXPECT_EQ(Run(), kExitBadInput);
  EXPECT_THAT(err_.str(), HasSubstr("has not run yet, so its image is not known: name one with --image"));
  err_.str("");
  flags_.image = "mine";
  job_["spec"]["volumes"][1] = {{"name", "checkpoints"}, {"emptyDir", json::object()}};
  EXPECT_EQ(Run(), kExitBadInput);
  EXPECT_THAT(err_.str(), HasSubstr("in an emptyDir"));
  err_.str("");
  job_["spec"].erase("checkpoint");
  EXPECT_EQ(Run(), kExitBadInput);
  EXPECT_THAT(err_.str(), HasSubstr("has no spec.checkpoint"));
  EXPECT_TRUE(made_.is_null());
}

TEST(ClusterConfig, AServerWithoutASchemeIsRefused) {
  EXPECT_EQ(ClusterConfig({.server = "https://api:6443/"})->server, "https://api:6443");
  EXPECT_THAT(ClusterConfig({.server = "api:6443"}).error().message, HasSubstr("--server: 'api:6443' must begin with"));
}

}  // namespace
}  // namespace trainyard::cli
