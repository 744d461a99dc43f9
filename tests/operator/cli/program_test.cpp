// The program as a whole: exit codes and one-line errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <array>
#include <cstdio>
#include <memory>
#include <string>

#include "operator/http/server.h"
#include "tests/operator/cli/temporary_directory.h"

namespace trainyard::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

struct Outcome {
  int code = -1;
  std::string output;  // stdout and stderr
};

Outcome Trainyard(const std::string& arguments, const std::string& streams = "2>&1") {
  Outcome outcome;
  const std::string command = std::string(TRAINYARD_BIN_DIR) + "/trainyard " + arguments + " " + streams;
  FILE* pipe = popen(command.c_str(), "r");
  std::array<char, 4096> buffer;
  while (size_t got = fread(buffer.data(), 1, buffer.size(), pipe)) outcome.output.append(buffer.data(), got);
  outcome.code = WEXITSTATUS(pclose(pipe));
  return outcome;
}

TEST(Program, ReportsUsageInOneLine) {
  for (const char* arguments :
       {"", "frobnicate", "run", "resize tiny", "get -o xml", "run x.yaml --nodes 0", "top --server ''",
        "top --kubeconfig=", "top --kubeconfig /tmp", "topology /tmp", "get ''", "get --state-dir ''", "validate ''"}) {
    Outcome outcome = Trainyard(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_THAT(outcome.output, StartsWith("trainyard: ")) << arguments;
    EXPECT_EQ(std::count(outcome.output.begin(), outcome.output.end(), '\n'), 1) << outcome.output;
  }
  EXPECT_EQ(Trainyard("--help").code, 0);
  EXPECT_THAT(Trainyard("version").output, StartsWith("trainyard 0."));
}

TEST(Program, SaysThatStandardOutputIsFull) {
  for (const std::string arguments : {"version", "--help", "checkpoints list .", "checkpoints list . --json"}) {
    const Outcome outcome = Trainyard(arguments, "2>&1 >/dev/full");
    EXPECT_EQ(outcome.code, 3) << arguments;
    EXPECT_EQ(outcome.output, "trainyard: standard output: No space left on device\n") << arguments;
  }
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  ASSERT_EQ(dup2(ends[1], 9), 9);  // the shell knows descriptors of one digit
  const Outcome gone = Trainyard("version", "2>&1 >&9");
  close(ends[1]);
  close(9);
  EXPECT_EQ(gone.code, 3);
  EXPECT_EQ(gone.output, "") << "a reader that has seen enough needs no word";
}

TEST(Program, PrintsEveryErrorOfAJob) {
  TemporaryDirectory dir;
  std::string text = kSmallJob;
  text.replace(text.find("count: 2"), 8, "count: 99, minCount: 100");
  Outcome outcome = Trainyard("validate " + dir.Write("job.yaml", text));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.output, HasSubstr("job.yaml: spec.gpus.minCount: 100 is more than count 99\n"));
  EXPECT_THAT(outcome.output,
              HasSubstr("job.yaml: spec.gpus.count: 99 is more than spec.training.globalBatchSize 8\n"));
  outcome = Trainyard("validate " + dir.Write("good.yaml", kSmallJob));
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.output, HasSubstr("TrainingJob tiny is valid"));
}

TEST(Program, RunRefusesWhatCannotRun) {
  TemporaryDirectory dir;
  const std::string state = " --state-dir " + (dir / "state");
  Outcome outcome = Trainyard("run " + (dir / "none.yaml") + state);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.output, StartsWith("trainyard: cannot read "));
  outcome = Trainyard("run " + dir.Write("job.yaml", kSmallJob) + state);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.output, HasSubstr("volumes/corpus/train.txt; put it there"));
}

TEST(Program, RunSaysThatItsPortIsTaken) {
  TemporaryDirectory dir;
  dir.Write("state/volumes/corpus/train.txt", "hello");
  auto other = http::Server::Start({}, [](const http::Request&) { return http::Response::Text(200, "taken"); });
  ASSERT_TRUE(other.has_value());
  const std::string port = std::to_string((*other)->port());
  Outcome outcome =
      Trainyard("run " + dir.Write("job.yaml", kSmallJob) + " --state-dir " + (dir / "state") + " --listen " + port);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.output, HasSubstr("trainyard: --listen: "));
  EXPECT_THAT(outcome.output, HasSubstr(port));
}

TEST(Program, RunPlansWithoutStarting) {
  TemporaryDirectory dir;
  Outcome outcome = Trainyard("run " + dir.Write("job.yaml", std::string(kSmallJob) + "  planOnly: true\n") +
                              " --state-dir " + (dir / "state"));
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("plan: 2 GPUs"));
}

TEST(Program, RunSaysWhatDoesNotFit) {
  TemporaryDirectory dir;
  dir.Write("state/volumes/corpus/train.txt", "hello");
  const std::string job = dir.Write("job.yaml", kSmallJob);
  const std::string state = " --state-dir " + (dir / "state");
  Outcome outcome = Trainyard("run " + job + " --nodes 1 --gpus-per-node 1" + state);
  EXPECT_EQ(outcome.code, 2) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("trainyard: NoRoom: needs 2 nodes"));
  outcome = Trainyard("run " + job + " --memory-per-gpu 2Mi" + state);
  EXPECT_EQ(outcome.code, 2) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("trainyard: DoesNotFit: "));
}

TEST(Program, ClientsSayThatNothingRuns) {
  TemporaryDirectory dir;
  Outcome outcome = Trainyard("get --state-dir " + dir.path());
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.output, StartsWith("trainyard: no 'trainyard run' is active in "));
}

}  // namespace
}  // namespace trainyard::cli
