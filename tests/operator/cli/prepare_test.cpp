#include "operator/cli/run/prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/cli/temporary_directory.h"

namespace trainyard::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(PrepareRun, MapsVolumesAndFindsTheData) {
  TemporaryDirectory dir;
  dir.Write("text/train.txt", "hello");
  RunFlags flags{.file = dir.Write("job.yaml", kSmallJob),
                 .nodes = 2,
                 .gpus_per_node = 4,
                 .memory_per_gpu = "4Gi",
                 .volumes = {"corpus=" + (dir / "text"), "checkpoints=" + (dir / "saved")}};
  std::vector<std::string> errors;
  RunSetup setup = PrepareRun(flags, dir / "state", errors);
  EXPECT_THAT(errors, IsEmpty());
  EXPECT_EQ(setup.cluster.nodes, 2);
  EXPECT_EQ(setup.cluster.gpu_memory_mib, 4096);
  EXPECT_EQ(setup.job.spec.volumes[0].host_path, dir / "text");
  EXPECT_EQ(setup.job.spec.volumes[0].claim_name, "");
  EXPECT_TRUE(std::filesystem::is_directory(dir / "saved"));  // a place for checkpoints need not exist before
}

TEST(PrepareRun, LooksForClaimsInTheStateDirectory) {
  TemporaryDirectory dir;
  RunFlags flags{.file = dir.Write("job.yaml", kSmallJob)};
  std::vector<std::string> errors;
  PrepareRun(flags, dir / "state", errors);
  EXPECT_THAT(errors, ElementsAre("spec.data.train[0]: there is no file " + (dir / "state") +
                                  "/volumes/corpus/train.txt; put it there, or say where volume 'corpus' lies: "
                                  "--volume corpus=DIRECTORY"));
  dir.Write("state/volumes/corpus/train.txt", "hello");
  errors.clear();
  PrepareRun(flags, dir / "state", errors);
  EXPECT_THAT(errors, IsEmpty());
}

TEST(PrepareRun, TwoRunsDoNotTrainWithOneCheckpointDirectory) {
  TemporaryDirectory dir;
  dir.Write("text/train.txt", "hello");
  const RunFlags flags{.file = dir.Write("job.yaml", kSmallJob),
                       .volumes = {"corpus=" + (dir / "text"), "checkpoints=" + (dir / "saved")}};
  std::vector<std::string> errors;
  {
    const RunSetup first = PrepareRun(flags, dir / "one", errors);
    EXPECT_THAT(errors, IsEmpty());
    PrepareRun(flags, dir / "two", errors);
    EXPECT_THAT(errors, ElementsAre("spec.checkpoint: another 'trainyard run' trains with " + (dir / "saved/tiny") +
                                    "; wait for it, or give this job another spec.checkpoint.path"));
  }
  errors.clear();
  PrepareRun(flags, dir / "two", errors);
  EXPECT_THAT(errors, IsEmpty()) << "the first has ended";
}

TEST(PrepareRun, RefusesFlagsThatMeanNothing) {
  TemporaryDirectory dir;
  RunFlags flags{.file = dir.Write("job.yaml", kSmallJob),
                 .memory_per_gpu = "lots",
                 .volumes = {"corpus", "corpsu=/data", "checkpoints=/a", "checkpoints=/b"}};
  std::vector<std::string> errors;
  PrepareRun(flags, dir / "state", errors);
  EXPECT_THAT(errors, ElementsAre(HasSubstr("--memory-per-gpu: 'lots' is not a quantity"),
                                  "--volume: 'corpus' is not NAME=PATH", "--volume: 'checkpoints' is given twice",
                                  HasSubstr("--volume: the job has no volume 'corpsu'; did you mean 'corpus'?")));
}

TEST(PrepareRun, RefusesAJobThatWouldNotRun) {
  TemporaryDirectory dir;
  dir.Write("state/volumes/corpus/train.txt", "hello");
  RunFlags flags{.file = dir.Write("job.yaml", std::string(kSmallJob) + "  suspend: true\n")};
  std::vector<std::string> errors;
  PrepareRun(flags, dir / "state", errors);
  EXPECT_THAT(errors, ElementsAre(HasSubstr("spec.suspend is true")));
  flags.file = dir.Write("job.yaml", std::string(kSmallJob) + "  managedBy: example.com/other\n");
  errors.clear();
  PrepareRun(flags, dir / "state", errors);
  EXPECT_THAT(errors, ElementsAre(HasSubstr("spec.managedBy is 'example.com/other', so nothing would run")));
  flags.file = dir.Write("two.yaml", std::string(kSmallJob) + "---\n" + kSmallJob);
  errors.clear();
  PrepareRun(flags, dir / "state", errors);
  EXPECT_THAT(errors, ElementsAre(HasSubstr("holds 2 jobs; run takes one")));
}

}  // namespace
}  // namespace trainyard::cli
