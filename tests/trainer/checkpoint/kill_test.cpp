// A real process, really killed: a child saves in a loop and gets SIGKILL at a random moment, again and again.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include <gtest/gtest.h>

#include "tests/trainer/checkpoint/sample.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/retention.h"
#include "trainer/checkpoint/verify.h"

namespace trainyard::checkpoint {
namespace {

const std::vector<SampleTensor> kModel = {{"model.embed_tokens.weight", {512, 64}}, {"model.norm.weight", {64}}};

// Saves steps until it dies; each committed step is written to `pipe`. Ends the process with 1 on any error.
[[noreturn]] void SaveForever(const std::string& root, const Fence& fence, int64_t step, int pipe) {
  if (!TakeOver(root, fence)) _exit(1);
  for (;; ++step) {
    if (!SaveSample(root, step, fence, 2, kModel)) _exit(1);
    if (::write(pipe, &step, sizeof(step)) != sizeof(step)) _exit(1);
    if (step % 8 == 0 && !Prune(root, Keep{.last = 2})) _exit(1);
  }
}

TEST(Kill, AtAnyMomentLosesNothingThatWasCommitted_Bug20) {
  const unsigned seed = std::random_device()();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  TempDirectory temp;
  int64_t committed = 0, half = 0;
  for (int attempt = 1; attempt <= 30; ++attempt) {
    SCOPED_TRACE("attempt " + std::to_string(attempt) + " seed " + std::to_string(seed));
    int pipe[2];
    ASSERT_EQ(::pipe(pipe), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) SaveForever(temp.path(), {"uid", attempt, 0}, committed + 1, pipe[1]);
    ::close(pipe[1]);
    // Lets it live for a random time after its first commit; it dies anywhere in a later save.
    int64_t step = 0;
    const auto next = [&] { return ::read(pipe[0], &step, sizeof(step)) == sizeof(step); };
    ASSERT_TRUE(next()) << "the child ended before its first commit";
    committed = step;
    ::usleep(static_cast<useconds_t>(random() % 60'000));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    while (next()) committed = step;
    ::close(pipe[0]);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child failed by itself";

    const Result<CheckpointInfo> newest = NewestValid(temp.path());
    ASSERT_TRUE(newest) << newest.error().message;
    EXPECT_TRUE(newest->skipped.empty()) << newest->skipped[0];
    ASSERT_GE(newest->step, committed);
    ASSERT_LE(newest->step, committed + 1) << "a commit may be done before it is told";
    const Result<VerifyReport> report = Verify(newest->path);
    ASSERT_TRUE(report);
    ASSERT_TRUE(report->ok()) << report->problems[0].ToString();
    ASSERT_EQ(LoadSample(newest->path, newest->step, 3, kModel), "");
    half +=
        ::access((StagingDirectory(temp.path(), {"uid", attempt, 0}) + "/" + StepDirectory(newest->step + 1)).c_str(),
                 F_OK) == 0;
    committed = newest->step;
  }
  std::printf("%lld checkpoints, %lld of 30 deaths within a save\n", static_cast<long long>(committed),
              static_cast<long long>(half));
  EXPECT_GT(half, 0) << "no death hit a save: the test shows nothing";
}

}  // namespace
}  // namespace trainyard::checkpoint
