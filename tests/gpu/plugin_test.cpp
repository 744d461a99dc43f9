// The plug-ins are whole: every symbol they need is there, and on a machine without a GPU opening them is one clear
// line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "trainer/contract/plugin.h"
#include "trainer/device/cuda_plugin.h"
#include "trainer/device/device.h"
#include "trainer/dist/in_process_comm.h"
#include "trainer/dist/nccl_plugin.h"

namespace trainyard {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

// Names a directory for as long as it lives.
class PluginDir {
 public:
  explicit PluginDir(const std::string& directory) { setenv(contract::kEnvPluginDir, directory.c_str(), 1); }
  ~PluginDir() { unsetenv(contract::kEnvPluginDir); }
};

// RTLD_NOW: a symbol that nobody has would be an error here.
TEST(Plugins, LoadWithoutAGpu) {
  std::string error;
  EXPECT_NE(contract::PluginEntry(contract::kCudaPlugin, device::kCudaPluginEntry, error), nullptr) << error;
  EXPECT_NE(contract::PluginEntry(contract::kNcclPlugin, dist::kNcclPluginEntry, error), nullptr) << error;
  EXPECT_EQ(contract::PluginEntry(contract::kNcclPlugin, "no_such_entry", error), nullptr);
  EXPECT_THAT(error, HasSubstr("no_such_entry"));
}

TEST(Plugins, ThatAreNotThereAreOneClearLine) {
  const PluginDir nowhere("/nonexistent");
  const auto device = device::Open("CUDA");
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(device.error().message,
              AllOf(HasSubstr("device CUDA: libtrainyard_cuda.so is not there"), HasSubstr("training.device to CPU")));
  auto host = dist::MakeSelfComm();
  const auto comm = dist::OpenNccl(*host, 0, std::chrono::seconds(1));
  ASSERT_FALSE(comm);
  EXPECT_EQ(comm.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(comm.error().message, HasSubstr("libtrainyard_nccl.so is not there"));
}

TEST(Plugins, WithoutAGpuSaySoInOneLine) {
  const auto device = device::Open("CUDA");
  if (device) GTEST_SKIP() << "this machine has a GPU: gpu_test tells the rest";
  EXPECT_EQ(device.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(device.error().message, AllOf(HasSubstr("device CUDA: no usable GPU: "), Not(HasSubstr("\n"))));
  auto host = dist::MakeSelfComm();
  const auto comm = dist::OpenNccl(*host, 0, std::chrono::seconds(1));
  ASSERT_FALSE(comm);
  EXPECT_THAT(comm.error().message, AllOf(HasSubstr("NCCL: CUDA: no usable GPU: "), Not(HasSubstr("\n"))));
}

}  // namespace
}  // namespace trainyard
