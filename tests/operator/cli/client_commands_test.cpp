#include "operator/cli/client_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "operator/api/json.h"
#include "operator/api/yaml.h"
#include "operator/cli/exit_codes.h"
#include "operator/cli/run/job_api.h"
#include "tests/operator/cli/stored_jobs.h"
#include "tests/operator/cli/temporary_directory.h"

namespace trainyard::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

// Answers from the handler of the API itself, or as if nobody listened.
class HandlerTransport : public http::Transport {
 public:
  explicit HandlerTransport(http::Handler handler) : handler_(std::move(handler)) {}
  Result<http::Response> Send(const http::Request& request) override {
    if (!handler_) return Fail(ErrorCode::kUnavailable, "connection refused");
    http::Request seen = request;
    const std::string base = "http://api.test";
    EXPECT_TRUE(seen.url.starts_with(base)) << seen.url;
    seen.url = seen.url.substr(base.size());
    return handler_(seen);
  }

 private:
  http::Handler handler_;
};

class ClientCommandsTest : public testing::Test {
 protected:
  ClientCommandsTest() {
    dir_.Write("endpoint.json", R"({"url": "http://api.test", "pid": 1})");
    json job = api::LoadYaml(kSmallJob, "job")->front();
    job["metadata"]["namespace"] = "default";
    job["metadata"]["generation"] = 1;
    job["metadata"]["creationTimestamp"] = "2026-01-31T11:58:40Z";
    job["status"] = json::parse(R"({"phase": "Running", "reason": "training", "gpus": 2, "observedGeneration": 1,
      "plan": {"product": "Simulated", "strategy": "FSDP", "gpus": 2}, "checkpoint": {"step": 100},
      "progress": {"step": 120, "steps": 400, "loss": 2.5312, "tokensPerSecond": 18234, "trainerPhase": "Training"}})");
    cluster_.Store(job);
  }
  json& job() { return cluster_.jobs.begin()->second; }
  ClientContext Context() {
    return {out_, err_, clock_, [this] { return std::make_unique<HandlerTransport>(handler_); },
            [this](Milliseconds time) {
              clock_.Advance(time);
              if (on_pause_) on_pause_();
            }};
  }
  std::string state_dir() const { return dir_.path(); }

  TemporaryDirectory dir_;
  StoredJobs cluster_;
  http::Handler handler_ = MakeJobApi(cluster_);
  FakeClock clock_{ParseTime("2026-01-31T12:00:00Z").value()};
  std::function<void()> on_pause_;
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(ClientCommandsTest, GetShowsTheColumnsOfTheCrd) {
  EXPECT_EQ(RunGet({.state_dir = state_dir()}, Context()), kExitOk);
  EXPECT_EQ(out_.str(),
            "NAME   PHASE     GPUS   PRODUCT     STEP   LOSS    TOKENS/S   CHECKPOINT   AGE\n"
            "tiny   Running   2      Simulated   120    2.531   18.2k      100          1m 20s\n");
  out_.str("");
  EXPECT_EQ(RunGet({.name = "tiny", .state_dir = state_dir(), .output = "wide"}, Context()), kExitOk);
  EXPECT_THAT(out_.str(), HasSubstr("STRATEGY   REASON\n"));
  EXPECT_THAT(out_.str(), HasSubstr("FSDP       training\n"));
}

TEST_F(ClientCommandsTest, GetShowsObjectsToPrograms) {
  EXPECT_EQ(RunGet({.name = "tiny", .state_dir = state_dir(), .output = "json"}, Context()), kExitOk);
  EXPECT_EQ(json::parse(out_.str()), job());
  out_.str("");
  EXPECT_EQ(RunGet({.state_dir = state_dir(), .output = "yaml"}, Context()), kExitOk);
  json list = api::LoadYaml(out_.str(), "out")->front();
  EXPECT_EQ(list["kind"], "List");
  EXPECT_EQ(list["items"][0], job());
}

TEST_F(ClientCommandsTest, GetSaysWhatIsMissing) {
  EXPECT_EQ(RunGet({.name = "tinny", .state_dir = state_dir()}, Context()), kExitNotFound);
  EXPECT_EQ(err_.str(), "trainyard: no job 'tinny'; did you mean 'tiny'?\n");
  err_.str("");
  EXPECT_EQ(RunGet({.state_dir = dir_ / "none"}, Context()), kExitUnreachable);
  EXPECT_THAT(err_.str(), StartsWith("trainyard: no 'trainyard run' is active in " + (dir_ / "none") + "; start one"));
  err_.str("");
  handler_ = nullptr;
  EXPECT_EQ(RunGet({.state_dir = state_dir()}, Context()), kExitUnreachable);
  EXPECT_THAT(err_.str(), StartsWith("trainyard: no 'trainyard run' answers at http://api.test (from "));
}

TEST_F(ClientCommandsTest, ResizePatchesTheCount) {
  EXPECT_EQ(RunResize({.name = "tiny", .state_dir = state_dir(), .gpus = 4}, Context()), kExitOk);
  EXPECT_EQ(out_.str(), "tiny: 2 -> 4 GPUs requested\n");
  EXPECT_EQ(job()["spec"]["gpus"]["count"], 4);
}

TEST_F(ClientCommandsTest, ResizeTellsWhyItIsRefused) {
  EXPECT_EQ(RunResize({.name = "tiny", .state_dir = state_dir(), .gpus = 64}, Context()), kExitBadInput);
  EXPECT_EQ(err_.str(), "trainyard: tiny: spec.gpus.count: 64 is more than spec.training.globalBatchSize 8\n");
  EXPECT_EQ(job()["spec"]["gpus"]["count"], 2);
}

TEST_F(ClientCommandsTest, ResizeWaitsUntilTheJobTrainsAtTheNewSize) {
  int looks = 0;
  on_pause_ = [&] {
    json& status = job()["status"];
    ++looks;
    if (looks == 1) job()["metadata"]["generation"] = 2;
    if (looks == 2) status["phase"] = "Resizing";
    if (looks == 3) {
      status["phase"] = "Running";
      status["gpus"] = 4;
      status["observedGeneration"] = 2;
      status["placingSince"] = "2026-01-31T12:00:10Z";
      status["progressTime"] = "2026-01-31T12:00:09Z";  // of the attempt before
    }
    if (looks == 4) {
      status["progressTime"] = "2026-01-31T12:00:11Z";
      status["progress"]["resumedFromStep"] = 123;
    }
  };
  EXPECT_EQ(RunResize({.name = "tiny", .state_dir = state_dir(), .gpus = 4, .wait = true}, Context()), kExitOk);
  EXPECT_EQ(looks, 4);
  EXPECT_THAT(out_.str(), HasSubstr("tiny trains on 4 GPUs, resumed from step 123\n"));
}

TEST_F(ClientCommandsTest, ResizeVerifiesTheStateThatWasLoaded) {
  struct Case {
    const char* saved;
    const char* loaded;
    int code;
    const char* text;
  };
  const Case cases[] = {
      {"0123456789abcdef", "0123456789abcdef", kExitOk,
       "verified: parameters and optimizer state in memory are the same"},
      {"0123456789abcdef", "fedcba9876543210", kExitJobFailed, "trainyard: NOT the same state: the ranks held 0123"},
      {"", "fedcba9876543210", kExitJobFailed,
       "trainyard: not verified: no operator heard with which state the ranks ended"},
  };
  const json before = job();
  for (const Case& c : cases) {
    job() = before;
    out_.str("");
    err_.str("");
    int looks = 0;
    on_pause_ = [&] {
      json& status = job()["status"];
      if (++looks == 1) {
        job()["metadata"]["generation"] = 2;
        status["gpus"] = 4;
        status["attempt"] = 2;
        status["observedGeneration"] = 2;
        status["placingSince"] = "2026-01-31T12:00:10Z";
        status["progressTime"] = "2026-01-31T12:00:11Z";
        status["progress"]["resumedFromStep"] = 123;
        status["resize"] = {{"from", 2},
                            {"to", 4},
                            {"attempt", 2},
                            {"savedHash", c.saved},
                            {"seconds", {{"place", 0.0}, {"save", 0.5}, {"start", 1.25}}}};
      }
      if (looks == 2) status["resize"]["loadedHash"] = c.loaded;
    };
    const ResizeFlags flags{.name = "tiny", .state_dir = state_dir(), .gpus = 4, .verify = true};
    EXPECT_EQ(RunResize(flags, Context()), c.code) << c.text;
    EXPECT_EQ(looks, 2) << "it waits until the hash is known";
    EXPECT_THAT(out_.str() + err_.str(), HasSubstr(c.text));
    EXPECT_THAT(out_.str(), HasSubstr("from 2 to 4 GPUs in 1.75 s: place 0 s, save 0.5 s, start 1.25 s\n"));
  }
}

TEST_F(ClientCommandsTest, ResizeDoesNotWaitForRoomThatNeverComes) {
  job()["status"]["conditions"] = json::parse(R"([{"type": "Placed", "status": "True", "reason": "ResizeWaits",
    "observedGeneration": 1, "message": "wants 3 GPUs: needs 3 nodes", "lastTransitionTime": "2026-01-31T12:00:00Z"}])");
  EXPECT_EQ(RunResize({.name = "tiny", .state_dir = state_dir(), .gpus = 3, .wait = true}, Context()), kExitBadInput);
  EXPECT_EQ(err_.str(), "trainyard: tiny goes on with 2 GPUs; wants 3 GPUs: needs 3 nodes\n");
}

TEST_F(ClientCommandsTest, ResizeGivesUpWhenTheJobEndsOrTheTimeIsOver) {
  on_pause_ = [&] { job()["status"]["phase"] = "Succeeded"; };
  EXPECT_EQ(RunResize({.name = "tiny", .state_dir = state_dir(), .gpus = 4, .wait = true}, Context()), kExitJobFailed);
  EXPECT_THAT(err_.str(), HasSubstr("tiny is Succeeded; it ended before it trained at the new size"));
  job()["status"]["phase"] = "Running";
  on_pause_ = nullptr;
  err_.str("");
  EXPECT_EQ(
      RunResize({.name = "tiny", .state_dir = state_dir(), .gpus = 8, .wait = true, .timeout_seconds = 5}, Context()),
      kExitUnreachable);
  EXPECT_THAT(err_.str(), HasSubstr("tiny does not train at the new size after 5 s: Running, training"));
}

}  // namespace
}  // namespace trainyard::cli
