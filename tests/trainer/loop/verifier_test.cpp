// Checkpoints are read back beside training: what is right is said to be, what is bad is named and left alone.
#include "trainer/loop/verifier.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/checkpoint/sample.h"
#include "tests/trainer/launch/subprocess.h"
#include "trainer/checkpoint/fence.h"

namespace trainyard::loop {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using trainyard::testing::Await;

class VerifierTest : public ::testing::Test {
 protected:
  VerifierTest() {
    const checkpoint::Fence fence{"uid", 1, 0};
    EXPECT_TRUE(checkpoint::TakeOver(root_, fence));
    for (const int64_t step : {100, 200}) EXPECT_TRUE(checkpoint::SaveSample(root_, step, fence, 2));
  }
  std::string Shard(int64_t step) const {
    return root_ + "/" + checkpoint::StepDirectory(step) + "/" + checkpoint::ShardPath(checkpoint::kModelGroup, 1);
  }
  void FlipLastBit(int64_t step) {
    std::fstream file(Shard(step), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-1, std::ios::end);
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(-1, std::ios::end);
    file.put(byte);
  }

  checkpoint::TempDirectory temp_;
  const std::string root_ = temp_.path();
};

TEST_F(VerifierTest, LooksAtWhatItIsAskedFor) {
  Verifier verifier(root_, 0, checkpoint::PosixFileSystem());
  verifier.Look(200);
  ASSERT_TRUE(Await([&] { return verifier.Found(200).has_value(); }));
  EXPECT_TRUE(verifier.Found(200)->good);
  EXPECT_GT(verifier.Found(200)->seconds, 0);
  EXPECT_FALSE(verifier.Found(100)) << "nobody asked";
  EXPECT_THAT(verifier.Bad(), IsEmpty());
  FlipLastBit(200);
  verifier.Look(200);
  ASSERT_TRUE(Await([&] { return !verifier.Found(200)->good; }));
  EXPECT_THAT(verifier.Found(200)->problem, HasSubstr("model/shard-00002"));
  EXPECT_THAT(verifier.Found(200)->problem, HasSubstr("of rank 1"));
  EXPECT_THAT(verifier.Bad(), ElementsAre(200));
  EXPECT_TRUE(std::filesystem::exists(Shard(200))) << "it is left alone";
}

TEST_F(VerifierTest, FinishWaitsForWhatWasAskedFor) {
  Verifier verifier(root_, 0, checkpoint::PosixFileSystem());
  verifier.Finish();  // nothing was
  verifier.Look(200);
  verifier.Finish();
  EXPECT_TRUE(verifier.Found(200));
}

TEST_F(VerifierTest, LooksAtAllOnItsScheduleAndForgetsWhatHasGone) {
  FlipLastBit(100);
  Verifier verifier(root_, 1e-6, checkpoint::PosixFileSystem());
  ASSERT_TRUE(Await([&] { return verifier.Found(200) && verifier.Found(100); }));
  EXPECT_TRUE(verifier.Found(200)->good);
  EXPECT_THAT(verifier.Bad(), ElementsAre(100));
  EXPECT_THAT(verifier.Damage(), ::testing::StartsWith("step 100: model/shard-00002"));
  std::filesystem::remove_all(root_ + "/" + checkpoint::StepDirectory(100));
  EXPECT_TRUE(Await([&] { return verifier.Bad().empty(); }));
  EXPECT_EQ(verifier.Damage(), "");
  // What is asked for comes in between.
  verifier.Look(200);
  EXPECT_TRUE(Await([&] { return verifier.Found(200).has_value(); }));
}

TEST_F(VerifierTest, EndsInTheMiddleOfALook) {
  for (int i = 0; i < 20; ++i) {
    Verifier verifier(root_, 1e-6, checkpoint::PosixFileSystem());
    verifier.Look(200);
  }
}

}  // namespace
}  // namespace trainyard::loop
