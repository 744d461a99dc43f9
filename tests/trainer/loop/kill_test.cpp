// kill -9 at bad moments: the next attempt goes on from the newest checkpoint and ends with the parameters of a run
// that was never disturbed.
#include <poll.h>
#include <sys/inotify.h>

#include "tests/trainer/loop/job_fixture.h"

namespace trainyard::loop {
namespace {

class KillTest : public JobTest {
 protected:
  // Kills rank `rank` of a run under way and waits for its end, which must name the rank.
  void KillRank(Attempt& run, pid_t pid, int rank) {
    ASSERT_GT(pid, 0);
    kill(pid, SIGKILL);
    EXPECT_EQ(run.process->Wait(), 128 + SIGKILL) << run.process->Log();
    EXPECT_EQ(run.Termination()["class"], "Killed") << run.process->Log();
    EXPECT_EQ(run.Termination()["rank"], rank) << run.process->Log();
  }

  // Waits until the checkpoint of `step` or a later one is there, since saves go on beside training.
  static bool AwaitCheckpoint(Attempt& run, int64_t step) {
    const auto there = [&] {
      const auto status = run.StatusFile();
      return status.is_object() && status.contains("checkpoint") &&
             status["checkpoint"].value("step", int64_t{0}) >= step;
    };
    return Await([&] { return there() || !run.process->Running(); }) && there();
  }

  // Step directories in a staging directory: saves that began and were not committed.
  static std::vector<std::string> Unfinished(const std::string& staging) {
    std::vector<std::string> names;
    std::error_code gone;
    for (const auto& entry : std::filesystem::directory_iterator(staging, gone)) {
      const std::string name = entry.path().filename();
      if (name.rfind("step-", 0) == 0) names.push_back(name);
    }
    return names;
  }
};

TEST_F(KillTest, InTheMiddleOfTraining) {
  job_["training"]["steps"] = 400;
  job_["checkpoint"]["everySteps"] = 40;
  const Attempt undisturbed = Undisturbed(2);
  int attempt = 1;
  for (const int rank : {1, 0}) {
    Attempt run = Start(2, attempt++);
    ASSERT_TRUE(AwaitCheckpoint(run, rank == 1 ? 40 : 80)) << run.process->Log();
    KillRank(run, run.PidOf(rank), rank);
  }
  const Attempt last = RunToEnd(2, attempt);
  EXPECT_GE(last.StatusFile()["resumedFromStep"].get<int64_t>(), 80);
  EXPECT_EQ(last.StatusFile()["parameterHash"], undisturbed.StatusFile()["parameterHash"]);
}

TEST_F(KillTest, InTheMiddleOfASave) {
  job_["training"]["steps"] = 40;
  job_["checkpoint"]["everySteps"] = 10;
  const Attempt undisturbed = Undisturbed(2);
  // A save begins with a directory in the attempt's staging directory. That moment is known to the microsecond, the end
  // of the save is not: a kill that comes too late is tried again with the next attempt.
  bool hit = false;
  int attempt = 0;
  while (!hit && attempt < 3) {
    Attempt run = Start(2, ++attempt);
    const std::string staging = CheckpointRoot() + "/.staging/uid-1-" + std::to_string(attempt);
    ASSERT_TRUE(Await([&] { return std::filesystem::exists(staging); })) << run.process->Log();
    const int watch = inotify_init1(IN_CLOEXEC);
    ASSERT_GE(inotify_add_watch(watch, staging.c_str(), IN_CREATE), 0);
    const pid_t pid = run.PidOf(1);
    ASSERT_GT(pid, 0) << run.process->Log();
    pollfd saving{watch, POLLIN, 0};
    ASSERT_EQ(poll(&saving, 1, 60'000), 1) << run.process->Log();
    kill(pid, SIGKILL);
    close(watch);
    EXPECT_EQ(run.process->Wait(), 128 + SIGKILL) << run.process->Log();
    hit = !Unfinished(staging).empty();
    if (!hit) continue;
    for (const std::string& name : Unfinished(staging)) {
      EXPECT_FALSE(std::filesystem::exists(CheckpointRoot() + "/" + name)) << "half a save is no checkpoint";
    }
  }
  ASSERT_TRUE(hit) << "no kill met a save";
  const Attempt last = RunToEnd(2, attempt + 1);
  EXPECT_EQ(last.StatusFile()["parameterHash"], undisturbed.StatusFile()["parameterHash"]);
}

}  // namespace
}  // namespace trainyard::loop
