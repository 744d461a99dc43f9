// One rank of a real run stops, or fails: the others end in time, and everyone names it.
#include <sys/mount.h>

#include <csignal>

#include "tests/trainer/loop/job_fixture.h"

namespace trainyard::loop {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr int kWorld = 3;

class PeerTest : public JobTest {
 protected:
  PeerTest() {
    job_["training"]["steps"] = 1'000'000;
    job_["training"]["evaluation"]["everySteps"] = 0;
    job_["checkpoint"]["everySteps"] = 0;
  }
  // What `rank` said last.
  static std::string LastWords(const Attempt& run, int rank) {
    std::istringstream lines(run.process->Log());
    std::string last;
    for (std::string line; std::getline(lines, line);) {
      if (line.find("trainyard-trainer: rank " + std::to_string(rank) + ": ") != std::string::npos) last = line;
    }
    return last;
  }
};

class StoppedPeerTest : public PeerTest, public ::testing::WithParamInterface<int> {};

TEST_P(StoppedPeerTest, IsNamedByAllOthersAndByTheLauncher) {
  const int stopped = GetParam();
  Attempt run = Start(kWorld, 1, {{"TRAINYARD_COLLECTIVE_TIMEOUT_SECONDS", "3"}});
  ASSERT_TRUE(run.AwaitStep(3)) << run.process->Log();
  const pid_t pid = run.PidOf(stopped);
  ASSERT_GT(pid, 0);
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(kill(pid, SIGSTOP), 0);
  EXPECT_EQ(run.process->Wait(), contract::kExitCommunication) << run.process->Log();
  // The deadline, and what the launcher leaves the stopped one before it kills it; the machine may be busy.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  const std::string who = "rank " + std::to_string(stopped) + " ";
  for (int rank = 0; rank < kWorld; ++rank) {
    if (rank == stopped) continue;
    // The call, its unit and the guilty rank.
    EXPECT_THAT(LastWords(run, rank), AllOf(ContainsRegex("(AllGather|ReduceScatter|AllReduce) '[a-z]+ [^']+'"),
                                            HasSubstr(who + "is silent")))
        << run.process->Log();
  }
  const auto end = run.Termination();
  ASSERT_TRUE(end.is_object());
  EXPECT_EQ(end["class"], "Communication");
  EXPECT_THAT(end["message"].get<std::string>(),
              AllOf(HasSubstr(who + "is silent"),
                    HasSubstr("flight record: " + who + "is behind: its process is stopped, its last call is ")));
}
INSTANTIATE_TEST_SUITE_P(Ranks, StoppedPeerTest, ::testing::Values(0, 1));

// Only the rank whose turn it is reads the bad token; the deadline of five minutes plays no part.
TEST_F(PeerTest, DataThatOneRankCannotReadEndsAllAtOnce) {
  std::vector<uint16_t> tokens(8 * 32 * 60 + 1, 7);
  tokens[5000] = 999;
  const uint32_t version_and_width[2] = {1, 2};
  const uint64_t count_and_vocab[2] = {tokens.size(), 256};
  WriteText(dir_ / "volumes/corpus/train.bin",
            "TYTOKEN1" + std::string(reinterpret_cast<const char*>(version_and_width), 8) +
                std::string(reinterpret_cast<const char*>(count_and_vocab), 16) +
                std::string(reinterpret_cast<const char*>(tokens.data()), tokens.size() * 2));
  job_["data"] = {{"format", "Tokens"}, {"train", {{{"volume", "corpus"}, {"path", "train.bin"}}}}};
  const auto start = std::chrono::steady_clock::now();
  Attempt run = RunToEnd(kWorld, 1, contract::kExitData);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
  const auto end = run.Termination();
  ASSERT_TRUE(end.is_object()) << run.process->Log();
  const int guilty = end["rank"].get<int>();
  for (int rank = 0; rank < kWorld; ++rank) {
    if (rank == guilty) continue;
    EXPECT_THAT(LastWords(run, rank), HasSubstr("rank " + std::to_string(guilty) + " gave up: training data of step "))
        << run.process->Log();
  }
}

// Every rank writes to a disk of its own size in real life; here rank 0's share is the one that does not fit.
// Training goes on; who stops it gets no checkpoint of its last step, and every rank says so.
TEST_F(PeerTest, ADiskThatIsFullForOneRankFailsTheLastSaveOfAll) {
  const std::string volume = dir_ / "volumes/checkpoints";
  if (mount("trainyard-test", volume.c_str(), "tmpfs", 0, "size=600k") != 0) {
    GTEST_SKIP() << "needs the right to mount a small file system: " << std::strerror(errno);
  }
  job_["checkpoint"]["everySteps"] = 2;
  job_["checkpoint"]["keepLast"] = 9;
  Attempt run = Start(kWorld, 1);
  EXPECT_TRUE(Await([&] {
    const auto status = run.StatusFile();
    return !run.process->Running() ||
           (status.is_object() && status.contains("checkpoint") && status["checkpoint"].value("failures", 0) > 0);
  })) << run.process->Log();
  EXPECT_TRUE(run.AwaitStep(run.LastStep() + 10)) << run.process->Log();
  run.process->Signal(SIGTERM);
  EXPECT_EQ(run.process->Wait(), contract::kExitStorage) << run.process->Log();
  umount2(volume.c_str(), MNT_DETACH);
  const auto end = run.Termination();
  ASSERT_TRUE(end.is_object()) << run.process->Log();
  EXPECT_THAT(end["message"].get<std::string>(), HasSubstr("No space left"));
  for (int rank = 0; rank < kWorld; ++rank) {
    EXPECT_THAT(LastWords(run, rank),
                AnyOf(HasSubstr("not written"), ContainsRegex("rank [0-2] gave up: checkpoint of step")))
        << run.process->Log();
  }
}

}  // namespace
}  // namespace trainyard::loop
