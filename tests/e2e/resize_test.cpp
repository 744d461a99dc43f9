// Ten resizes in one run: not a bit of the result changes, no sample is repeated or skipped, and each resize proves
// itself by the state in memory.
#include <map>

#include "tests/e2e/run_fixture.h"

namespace trainyard::e2e {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

class ResizeRun : public RunTest {
 protected:
  // step -> place in the global order -> digests of the tokens that were read there, by all ranks of all attempts.
  using Samples = std::map<int64_t, std::multimap<int64_t, std::string>>;
  static Samples Read(const std::string& directory) {
    Samples samples;
    for (const auto& file : std::filesystem::directory_iterator(directory)) {
      std::istringstream lines(Slurp(file.path()));
      for (std::string line; std::getline(lines, line);) {
        const auto json = nlohmann::json::parse(line, nullptr, false);
        if (!json.is_object()) continue;
        samples[json["step"].get<int64_t>()].emplace(json["cursor"].get<int64_t>(), json["digest"].get<std::string>());
      }
    }
    return samples;
  }
  // The job with its samples logged to `directory`.
  std::string Logged(JobText job, const std::string& directory) {
    std::filesystem::create_directories(directory);
    job.more = "  env: [{name: TRAINYARD_SAMPLE_LOG, value: " + directory + "}]\n";
    return job.Yaml();
  }
};

TEST_F(ResizeRun, TenInARowChangeNeitherTheOrderOfSamplesNorABitOfTheResult) {
  JobText job;
  job.steps = 1200;
  job.gpus = 1;
  job.every_steps = 400;
  job.determinism = "WorldSize";
  auto run = StartRun(Logged(job, dir_ / "undisturbed"), 4, 1);
  ASSERT_EQ(run->Wait(seconds(180)), 0) << run->Log();
  const std::string undisturbed = FinalStatus()["progress"].value("parameterHash", "");
  ASSERT_EQ(undisturbed.size(), 16u);
  Clean();

  job.gpus = 2;
  run = StartRun(Logged(job, dir_ / "resized"), 4, 1);
  ASSERT_TRUE(Await([&] { return LoggedStep() >= 20 || !run->Running(); }, seconds(120))) << run->Log();
  int from = job.gpus;
  for (const int to : {4, 3, 1, 2, 4, 1, 3, 2, 3, 4}) {
    const Outcome resized =
        Call({"resize", "tiny", "--gpus", std::to_string(to), "--state-dir", dir_.path(), "--verify"}, seconds(120));
    ASSERT_EQ(resized.code, 0) << from << " to " << to << ": " << resized.text << run->Log();
    EXPECT_THAT(resized.text, HasSubstr("verified: parameters and optimizer state in memory are the same, "));
    EXPECT_THAT(resized.text, HasSubstr("from " + std::to_string(from) + " to " + std::to_string(to) + " GPUs in "));
    std::printf("%s", resized.text.c_str());
    from = to;
  }
  ASSERT_EQ(run->Wait(seconds(240)), 0) << run->Log();
  const auto status = FinalStatus();
  EXPECT_EQ(status["phase"], "Succeeded");
  EXPECT_EQ(status["attempt"], 11);
  EXPECT_EQ(status["restarts"].value("user", 0) + status["restarts"].value("infrastructure", 0), 0);
  EXPECT_EQ(status["progress"]["parameterHash"], undisturbed);
  EXPECT_EQ(status["resize"]["from"], 3);
  EXPECT_EQ(status["resize"]["to"], 4);
  EXPECT_EQ(status["resize"]["savedHash"], status["resize"]["loadedHash"]);
  EXPECT_GT(status["resize"]["bytesReadPerRank"].get<int64_t>(), 0);
  for (const char* phase : {"place", "drain", "save", "start", "load", "firstStep"}) {
    EXPECT_TRUE(status["resize"]["seconds"].contains(phase)) << phase << ": " << status["resize"].dump();
  }
  const Samples expected = Read(dir_ / "undisturbed"), seen = Read(dir_ / "resized");
  ASSERT_EQ(expected.size(), static_cast<size_t>(job.steps));
  EXPECT_TRUE(seen == expected) << "samples were repeated, skipped or others";
}

}  // namespace
}  // namespace trainyard::e2e
