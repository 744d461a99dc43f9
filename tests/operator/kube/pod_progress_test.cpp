#include "operator/kube/pod_progress.h"

#include <condition_variable>
#include <map>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard::kube {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr Milliseconds kPatience{20'000};

api::PodSnapshot Pod(const std::string& uid, const std::string& ip = "10.0.0.1") {
  api::PodSnapshot pod;
  pod.name = "pod-" + uid;
  pod.uid = uid;
  pod.job_uid = "job-" + uid;
  pod.ip = ip;
  return pod;
}

// What all pods answer, changed by the test while it runs.
struct Pods {
  std::mutex mutex;  // guards the rest
  std::condition_variable changed;
  Result<http::Response> answer = http::Response::Json(200, R"({"phase": "Training", "step": 1})");
  bool hold = false;  // answers wait
  std::map<std::string, int> asked;

  int Asked(const std::string& url) {
    std::lock_guard lock(mutex);
    return asked[url];
  }
  bool AwaitAsked(const std::string& url, int times) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, kPatience, [&] { return asked[url] >= times; });
  }
  void Set(const std::function<void(Pods&)>& change) {
    std::lock_guard lock(mutex);
    change(*this);
    changed.notify_all();
  }
};

class PodsTransport : public http::Transport {
 public:
  explicit PodsTransport(std::shared_ptr<Pods> pods) : pods_(std::move(pods)) {}
  Result<http::Response> Send(const http::Request& request) override {
    std::unique_lock lock(pods_->mutex);
    ++pods_->asked[request.url];
    pods_->changed.notify_all();
    pods_->changed.wait(lock, [this] { return !pods_->hold; });
    return pods_->answer;
  }

 private:
  const std::shared_ptr<Pods> pods_;
};

class PodProgressTest : public testing::Test {
 protected:
  static constexpr const char* kUrl = "http://10.0.0.1:8471/status";

  std::unique_ptr<PodProgress> Make() {
    auto progress = std::make_unique<PodProgress>(options_, std::make_unique<PodsTransport>(pods_));
    progress->SetListener([this](const std::string& job_uid) {
      std::lock_guard lock(mutex_);
      heard_.push_back(job_uid);
      changed_.notify_all();
    });
    return progress;
  }
  bool AwaitHeard(size_t times) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return heard_.size() >= times; });
  }
  // Reads until `done` likes the result.
  static Result<json> ReadUntil(PodProgress& progress, const std::function<bool(const Result<json>&)>& done) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (true) {
      Result<json> read = progress.Read(Pod("a"));
      if (done(read) || std::chrono::steady_clock::now() > deadline) return read;
      std::this_thread::yield();
    }
  }

  PodProgressOptions options_;
  std::shared_ptr<Pods> pods_ = std::make_shared<Pods>();
  std::mutex mutex_;  // guards heard_
  std::condition_variable changed_;
  std::vector<std::string> heard_;
};

TEST_F(PodProgressTest, ReadNeverWaitsAndTheListenerHearsOfTheFirstAnswer) {
  pods_->Set([](Pods& pods) { pods.hold = true; });
  const auto progress = Make();
  Result<json> read = progress->Read(Pod("a"));
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(pods_->AwaitAsked(kUrl, 1));
  EXPECT_FALSE(progress->Read(Pod("a"))) << "the pod is still thinking";
  pods_->Set([](Pods& pods) { pods.hold = false; });
  ASSERT_TRUE(AwaitHeard(1));
  EXPECT_EQ(heard_[0], "job-a");
  read = progress->Read(Pod("a"));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ((*read)["step"], 1);
}

TEST_F(PodProgressTest, APodThatHasAnsweredIsNotAskedForEveryRead) {
  options_.refresh_interval = Milliseconds(3'600'000);
  const auto progress = Make();
  (void)progress->Read(Pod("a"));
  ASSERT_TRUE(AwaitHeard(1));
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(progress->Read(Pod("a")));
  EXPECT_EQ(pods_->Asked(kUrl), 1);
}

TEST_F(PodProgressTest, AChangedPhaseIsHeardAndAChangedStepIsNot) {
  options_.refresh_interval = Milliseconds(1);
  const auto progress = Make();
  (void)progress->Read(Pod("a"));
  ASSERT_TRUE(AwaitHeard(1));
  pods_->Set([](Pods& pods) { pods.answer = http::Response::Json(200, R"({"phase": "Training", "step": 2})"); });
  const auto step_is = [](int step) {
    return [step](const Result<json>& read) { return read && (*read)["step"] == step; };
  };
  ASSERT_TRUE(step_is(2)(ReadUntil(*progress, step_is(2))));
  EXPECT_EQ(heard_.size(), 1u);
  pods_->Set([](Pods& pods) { pods.answer = http::Response::Json(200, R"({"phase": "Checkpointing", "step": 3})"); });
  ASSERT_TRUE(step_is(3)(ReadUntil(*progress, step_is(3))));
  ASSERT_TRUE(AwaitHeard(2));
}

TEST_F(PodProgressTest, AskedAgainByItselfUntilTheFirstAnswer) {
  options_.first_answer = {Milliseconds(1), Milliseconds(4)};
  pods_->Set([](Pods& pods) { pods.answer = Fail(ErrorCode::kUnavailable, "connection refused"); });
  const auto progress = Make();
  (void)progress->Read(Pod("a"));
  ASSERT_TRUE(pods_->AwaitAsked(kUrl, 5));
  pods_->Set([](Pods& pods) { pods.answer = http::Response::Json(200, R"({"phase": "Starting"})"); });
  ASSERT_TRUE(AwaitHeard(1));
  EXPECT_TRUE(progress->Read(Pod("a")));
}

TEST_F(PodProgressTest, AnswersThatAreNoneAreErrors) {
  options_.first_answer = {Milliseconds(1), Milliseconds(1)};
  struct Case {
    Result<http::Response> answer;
    ErrorCode code;
  };
  const Case cases[] = {{http::Response::Text(200, "hello"), ErrorCode::kInvalidArgument},
                        {http::Response::Json(200, "[1]"), ErrorCode::kInvalidArgument},
                        {http::Response::Text(404, ""), ErrorCode::kNotFound},
                        {http::Response::Text(500, ""), ErrorCode::kUnavailable},
                        {Fail(ErrorCode::kDeadlineExceeded, "slow"), ErrorCode::kDeadlineExceeded}};
  for (const Case& c : cases) {
    pods_->Set([&](Pods& pods) { pods.answer = c.answer; });
    const auto progress = Make();
    const auto read = ReadUntil(*progress, [&](const Result<json>& got) { return !got && got.error().code == c.code; });
    ASSERT_FALSE(read);
    EXPECT_EQ(ErrorCodeName(read.error().code), ErrorCodeName(c.code)) << read.error().message;
  }
  EXPECT_TRUE(heard_.empty());
}

TEST_F(PodProgressTest, AnOldAnswerStandsInForAWhileAndThenGivesWay) {
  options_.refresh_interval = Milliseconds(1);
  options_.stale_after = Milliseconds(50);
  const auto progress = Make();
  (void)progress->Read(Pod("a"));
  ASSERT_TRUE(AwaitHeard(1));
  pods_->Set([](Pods& pods) { pods.answer = Fail(ErrorCode::kUnavailable, "connection refused"); });
  const auto read = ReadUntil(*progress, [](const Result<json>& got) { return !got; });
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().message, HasSubstr("refused"));
}

TEST_F(PodProgressTest, ForgetsWhoIsNotReadAndKeepsABound) {
  options_.max_pods = 3;
  options_.refresh_interval = Milliseconds(3'600'000);
  const auto progress = Make();
  for (const char* uid : {"a", "b", "c", "d"}) {
    (void)progress->Read(Pod(uid, std::string("10.0.0.") + uid));
    ASSERT_TRUE(pods_->AwaitAsked(std::string("http://10.0.0.") + uid + ":8471/status", 1));
  }
  ASSERT_TRUE(AwaitHeard(4));
  EXPECT_TRUE(progress->Read(Pod("d", "10.0.0.d")));
  EXPECT_FALSE(progress->Read(Pod("a", "10.0.0.a"))) << "unread for longest: forgotten, and new again";
}

TEST_F(PodProgressTest, APodThatHasEndedIsReadFromItsTerminationMessage) {
  auto progress = Make();
  api::PodSnapshot pod = Pod("a");
  pod.exit_code = 0;
  pod.termination_message = R"({"contract": 1, "class": "None", "status": {"phase": "Succeeded", "step": 400}})";
  const auto last = progress->Read(pod);
  ASSERT_TRUE(last) << last.error().message;
  EXPECT_EQ((*last)["step"], 400);
  EXPECT_EQ(pods_->Asked(kUrl), 0);
  for (const char* without : {"", "killed", "[]", "{}", R"({"status": 3})"}) {
    pod.termination_message = without;
    EXPECT_FALSE(progress->Read(pod)) << without;
  }
  EXPECT_EQ(pods_->Asked(kUrl), 0) << "nobody asks the dead";
  (void)progress->Read(Pod("a"));
  ASSERT_TRUE(AwaitHeard(1));
  const auto known = progress->Read(pod);
  ASSERT_TRUE(known) << known.error().message;
  EXPECT_EQ((*known)["step"], 1) << "the last answer outlives the pod";
}

TEST_F(PodProgressTest, AddressesOfBothFamilies) {
  const auto progress = Make();
  EXPECT_FALSE(progress->Read(Pod("a", "")));
  (void)progress->Read(Pod("b", "fd00::5"));
  EXPECT_TRUE(pods_->AwaitAsked("http://[fd00::5]:8471/status", 1));
}

}  // namespace
}  // namespace trainyard::kube
