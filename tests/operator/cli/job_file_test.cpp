#include "operator/cli/job_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/cli/temporary_directory.h"

namespace trainyard::cli {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::StartsWith;

TEST(JobFile, ReadsAJobWithItsDefaults) {
  TemporaryDirectory dir;
  JobFile file = LoadJobFile(dir.Write("job.yaml", kSmallJob));
  EXPECT_THAT(file.errors, IsEmpty());
  ASSERT_EQ(file.jobs.size(), 1u);
  EXPECT_EQ(file.jobs[0].spec.model.architecture->kv_heads, 2);
}

TEST(JobFile, NamesFileDocumentAndPath) {
  TemporaryDirectory dir;
  std::string text = std::string(kSmallJob) + "---\n" + kSmallJob;
  text.replace(text.rfind("globalBatchSize: 8"), 18, "globalBatchSiez: 8");
  JobFile file = LoadJobFile(dir.Write("job.yaml", text));
  EXPECT_THAT(file.errors, ElementsAre((dir / "job.yaml") +
                                       ": document 2: spec.training.globalBatchSiez: unknown field; did you mean "
                                       "'globalBatchSize'?"));
}

TEST(JobFile, SaysWhatIsMissing) {
  TemporaryDirectory dir;
  EXPECT_THAT(LoadJobFile(dir / "none.yaml").errors, ElementsAre(StartsWith("cannot read " + (dir / "none.yaml"))));
  EXPECT_THAT(LoadJobFile(dir.Write("empty.yaml", "# nothing\n")).errors,
              ElementsAre((dir / "empty.yaml") + ": holds no TrainingJob"));
}

}  // namespace
}  // namespace trainyard::cli
