#include "operator/cli/run/state_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "operator/base/files.h"
#include "tests/operator/cli/temporary_directory.h"

namespace trainyard::cli {
namespace {

TEST(StateDir, IsHeldByOneRunAtATime) {
  TemporaryDirectory dir;
  {
    auto first = StateDir::Lock(dir / "state");
    ASSERT_TRUE(first.has_value()) << first.error().message;
    auto second = StateDir::Lock(dir / "state");
    ASSERT_FALSE(second.has_value());
    EXPECT_EQ(second.error().code, ErrorCode::kAlreadyExists);
    EXPECT_THAT(second.error().message, testing::HasSubstr("(process " + std::to_string(getpid()) + ")"));
  }
  EXPECT_TRUE(StateDir::Lock(dir / "state").has_value());
}

TEST(StateDir, RemovesItsEndpointAtTheEndAndAStaleOneAtTheStart) {
  TemporaryDirectory dir;
  dir.Write("state/endpoint.json", "stale");
  {
    auto held = StateDir::Lock(dir / "state");
    ASSERT_TRUE(held.has_value());
    EXPECT_FALSE(std::filesystem::exists(dir / "state/endpoint.json"));
    ASSERT_TRUE(held->WriteEndpoint("http://127.0.0.1:1").has_value());
    EXPECT_THAT(ReadFile(dir / "state/endpoint.json").value(), testing::HasSubstr("\"url\":\"http://127.0.0.1:1\""));
  }
  EXPECT_FALSE(std::filesystem::exists(dir / "state/endpoint.json"));
}

TEST(StateDir, SaysWhereItCannotBeMade) {
  TemporaryDirectory dir;
  std::string file = dir.Write("file", "x");
  auto held = StateDir::Lock(file + "/state");
  ASSERT_FALSE(held.has_value());
  EXPECT_THAT(held.error().message, testing::StartsWith("--state-dir: cannot make " + file + "/state"));
}

}  // namespace
}  // namespace trainyard::cli
