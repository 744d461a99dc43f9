// VOLUME:PATH as commands take it.
#include "operator/cli/volume_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard::cli {
namespace {

using testing::HasSubstr;

TEST(VolumePath, IsAVolumeAndARelativePathThatStaysOnIt) {
  EXPECT_EQ(ParseVolumePath("models:a/b:c")->path, "a/b:c");
  EXPECT_EQ(ParseVolumePath("models:..a/b")->volume, "models");
  for (const char* wrong : {"", "models", "models:", ":a", "models:/a", "models:../a", "models:a/..", "/tmp/a"}) {
    const Result<api::VolumeDirectory> place = ParseVolumePath(wrong);
    ASSERT_FALSE(place) << wrong;
    EXPECT_THAT(place.error().message, HasSubstr("is not VOLUME:PATH")) << wrong;
  }
}

}  // namespace
}  // namespace trainyard::cli
