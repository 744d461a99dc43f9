// Saves of real processes: a disk that is full for a while, and a cadence by time with checkpoints that are read back.
#include <sys/mount.h>

#include "tests/trainer/loop/job_fixture.h"
#include "trainer/checkpoint/reader.h"

namespace trainyard::loop {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

class SaveProcessTest : public JobTest {
 protected:
  SaveProcessTest() { job_["training"]["steps"] = 1'000'000; }

  // Waits until what status says of checkpoints is as it should be; false when the run ends before.
  static bool AwaitCheckpoint(const Attempt& run, const std::function<bool(const nlohmann::json&)>& condition) {
    const auto holds = [&] {
      const nlohmann::json status = run.StatusFile();
      return status.is_object() && status.contains("checkpoint") && condition(status["checkpoint"]);
    };
    return Await([&] { return holds() || !run.process->Running(); }) && holds();
  }
};

TEST_F(SaveProcessTest, ADiskThatIsFullForAWhileStopsNothing) {
  const std::string volume = dir_ / "volumes/checkpoints";
  if (mount("trainyard-test", volume.c_str(), "tmpfs", 0, "size=4m") != 0) {
    GTEST_SKIP() << "needs the right to mount a small file system: " << std::strerror(errno);
  }
  Attempt run = Start(2, 1);
  EXPECT_TRUE(AwaitCheckpoint(run, [](const auto& c) { return c.value("step", 0) > 0; })) << run.process->Log();
  {
    std::ofstream filler(volume + "/filler", std::ios::binary);
    const std::string block(64 << 10, 'x');
    while (filler.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
    }
  }
  nlohmann::json full;
  EXPECT_TRUE(AwaitCheckpoint(run, [&](const auto& c) { return (full = c).value("failures", 0) > 1; }))
      << run.process->Log();
  EXPECT_THAT(full["failure"].template get<std::string>(),
              AllOf(HasSubstr("checkpoint of step "), HasSubstr(" not written: "),
                    EndsWith(": No space left on device; free space on the volume of the checkpoints or enlarge it")));
  const auto before = checkpoint::NewestValid(CheckpointRoot());
  ASSERT_TRUE(before) << before.error().message;
  const int64_t reached = run.LastStep();
  EXPECT_TRUE(run.AwaitStep(reached + 20)) << "training goes on";
  std::filesystem::remove(volume + "/filler");
  EXPECT_TRUE(AwaitCheckpoint(run, [&](const auto& c) {
    return c.value("step", int64_t{0}) > before->step && !c.contains("failures") && !c.contains("failure");
  })) << run.process->Log();
  run.process->Signal(SIGTERM);
  EXPECT_EQ(run.process->Wait(), contract::kExitStopped) << run.process->Log();
  const auto after = checkpoint::NewestValid(CheckpointRoot());
  EXPECT_TRUE(after && after->step == run.LastStep());
  umount2(volume.c_str(), MNT_DETACH);
}

TEST_F(SaveProcessTest, TheLastOneIsReadBackBeforeTheEnd) {
  job_["training"]["steps"] = 12;
  job_["checkpoint"]["verifyAfterSave"] = true;
  const Attempt run = RunToEnd(2, 1);
  const nlohmann::json status = run.StatusFile();
  EXPECT_EQ(status["phase"], "Succeeded");
  EXPECT_EQ(status["checkpoint"]["step"], 12);
  EXPECT_EQ(status["checkpoint"]["verified"], true) << status.dump();
  EXPECT_GT(status["checkpoint"]["verifySeconds"], 0);
}

TEST_F(SaveProcessTest, ByTimeAndReadBack) {
  job_["checkpoint"]["everySteps"] = 0;
  job_["checkpoint"]["everySeconds"] = 0.2;
  job_["checkpoint"]["verifyAfterSave"] = true;
  Attempt run = Start(3, 1);
  int64_t first = 0;
  EXPECT_TRUE(AwaitCheckpoint(run, [&](const auto& c) { return (first = c.value("step", int64_t{0})) > 0; }))
      << run.process->Log();
  nlohmann::json status;
  EXPECT_TRUE(AwaitCheckpoint(run, [&](const auto& c) {
    return (status = c).value("step", int64_t{0}) > first && c.value("verified", false);
  })) << run.process->Log();
  EXPECT_EQ(status["everySeconds"], 0.2);
  EXPECT_GT(status["nextStep"], status["step"]);
  EXPECT_GE(status["costSeconds"], 0);
  EXPECT_GT(status["verifySeconds"], 0);
  run.process->Signal(SIGTERM);
  EXPECT_EQ(run.process->Wait(), contract::kExitStopped) << run.process->Log();
}

}  // namespace
}  // namespace trainyard::loop
