// What goes wrong at a user's desk: each ends in one clear line that names the thing, a distinct exit code, and nothing
// half-written left as valid.
#include <sys/mount.h>

#include "tests/e2e/run_fixture.h"

namespace trainyard::e2e {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

class BadInput : public RunTest {
 protected:
  Outcome RunYaml(const std::string& yaml) {
    WriteText(dir_ / "job.yaml", yaml);
    return Call({"run", dir_ / "job.yaml", "--nodes", "1", "--gpus-per-node", "2", "--state-dir", dir_.path()},
                seconds(120));
  }
};

TEST_F(BadInput, UnknownField) {
  Outcome run = RunYaml(JobText{.more = "  sped: 3\n"}.Yaml());
  EXPECT_EQ(run.code, 2) << run.text;
  EXPECT_THAT(run.text, HasSubstr("spec.sped"));
}

TEST_F(BadInput, WrongType) {
  Outcome run = RunYaml(JobText{.more = "  suspend: maybe\n"}.Yaml());
  EXPECT_EQ(run.code, 2) << run.text;
  EXPECT_THAT(run.text, HasSubstr("spec.suspend"));
}

TEST_F(BadInput, ImpossibleCombination) {
  JobText job{.gpus = 9};  // more ranks than sequences in the global batch
  Outcome run = RunYaml(job.Yaml());
  EXPECT_EQ(run.code, 2) << run.text;
  EXPECT_THAT(run.text, AllOf(HasSubstr("globalBatchSize"), HasSubstr("9")));
}

TEST_F(BadInput, MissingDataFile) {
  std::filesystem::remove(dir_ / "volumes/corpus/train.txt");
  Outcome run = RunYaml(JobText().Yaml());
  EXPECT_EQ(run.code, 2) << run.text;
  EXPECT_THAT(run.text, HasSubstr("train.txt"));
}

TEST_F(BadInput, MoreGpusThanThereAre) {
  Outcome run = RunYaml(JobText{.gpus = 4}.Yaml());  // one node of two
  EXPECT_NE(run.code, 0);
  EXPECT_THAT(run.text, HasSubstr("4"));
}

TEST_F(BadInput, EveryCheckpointDamaged) {
  ASSERT_EQ(RunYaml(JobText{.steps = 10, .every_steps = 5}.Yaml()).code, 0);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir_ / "volumes/checkpoints/tiny")) {
    if (entry.path().extension() == ".safetensors") std::filesystem::resize_file(entry.path(), 100);
  }
  Outcome run = RunYaml(JobText{.steps = 20}.Yaml());
  EXPECT_EQ(run.code, 1) << run.text;
  EXPECT_THAT(run.text, AllOf(HasSubstr("checkpoint"), HasSubstr("safetensors")));
  Outcome verified = Call({"checkpoints", "verify", dir_ / "volumes/checkpoints/tiny"});
  EXPECT_EQ(verified.code, 1) << verified.text;
  EXPECT_THAT(verified.text, HasSubstr("safetensors"));
}

TEST_F(BadInput, FullDisk) {
  const std::string small = dir_ / "volumes/checkpoints";
  if (mount("tmpfs", small.c_str(), "tmpfs", 0, "size=1m") != 0) GTEST_SKIP() << "needs the right to mount a tmpfs";
  // Checkpoints of this model take about 1.5 MB.
  JobText job{.steps = 20, .every_steps = 10, .more = "  recovery: {maxRestarts: {infrastructure: 1}}\n"};
  Outcome run = RunYaml(job.Yaml());
  EXPECT_EQ(run.code, 1) << run.text;
  EXPECT_THAT(run.text, HasSubstr("No space left"));
  Outcome listed = Call({"checkpoints", "list", small + "/tiny", "-o", "json"});
  EXPECT_THAT(listed.text, ::testing::Not(HasSubstr("\"valid\": true"))) << listed.text;
  EXPECT_EQ(umount2(small.c_str(), MNT_DETACH), 0);
}

TEST_F(BadInput, TwoRunsOfOneStateDirectory) {
  auto first = StartRun(JobText{.steps = 100000});
  ASSERT_TRUE(Await([&] { return LoggedStep() >= 1 || !first->Running(); }, seconds(120))) << first->Log();
  Outcome second = RunYaml(JobText().Yaml());
  EXPECT_EQ(second.code, 2) << second.text;
  EXPECT_THAT(second.text, HasSubstr(dir_.path()));
  first->Signal(SIGINT);
  EXPECT_EQ(first->Wait(), 130);
}

TEST_F(BadInput, PortInUse) {
  auto first = StartRun(JobText{.steps = 100000});
  ASSERT_TRUE(Await([&] { return LoggedStep() >= 1 || !first->Running(); }, seconds(120))) << first->Log();
  const auto endpoint = nlohmann::json::parse(Slurp(dir_ / "endpoint.json"));
  const std::string url = endpoint["url"];
  const std::string port = url.substr(url.rfind(':') + 1);
  TempDir other;
  std::filesystem::create_directories(other / "volumes");
  std::filesystem::create_directory_symlink(dir_ / "volumes/corpus", other / "volumes/corpus");
  Outcome second = Call({"run", dir_ / "job.yaml", "--state-dir", other.path(), "--listen", port});
  EXPECT_EQ(second.code, 2) << second.text;
  EXPECT_THAT(second.text, HasSubstr(port));
  first->Signal(SIGINT);
  EXPECT_EQ(first->Wait(), 130);
}

TEST_F(BadInput, NothingRuns) {
  Outcome get = Call({"get", "--state-dir", dir_.path()});
  EXPECT_EQ(get.code, 3) << get.text;
  EXPECT_THAT(get.text, HasSubstr("trainyard run"));
}

}  // namespace
}  // namespace trainyard::e2e
