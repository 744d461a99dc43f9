#include "trainer/device/device.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>

namespace trainyard::device {
namespace {

TEST(CpuDevice, CountsBytesOfLiveTensors) {
  auto device = Open("CPU").value();
  EXPECT_EQ(device->Stats().current_bytes, 0);
  {
    at::Tensor a = device->Empty({10, 10}, at::kFloat);
    EXPECT_TRUE(a.is_contiguous());
    EXPECT_EQ(a.sizes(), (std::vector<int64_t>{10, 10}));
    EXPECT_EQ(device->Stats().current_bytes, 400);
    at::Tensor b = device->Empty({8}, at::kBFloat16);
    EXPECT_EQ(device->Stats().current_bytes, 416);
  }
  EXPECT_EQ(device->Stats().current_bytes, 0);
  EXPECT_EQ(device->Stats().peak_bytes, 416);
  device->ResetPeak();
  EXPECT_EQ(device->Stats().peak_bytes, 0);
}

TEST(CpuDevice, CountsWhatOperationsMakeApartFromItsOwn) {
  auto device = Open("CPU").value();
  const at::Tensor own = device->Empty({100'000}, at::kFloat).fill_(1);
  device->ResetPeak();
  const int64_t before = device->OperationStats().current_bytes, total = device->TotalStats().current_bytes;
  constexpr int64_t kBytes = 400'000;
  {
    const at::Tensor made = own + 1;
    EXPECT_EQ(device->OperationStats().current_bytes - before, kBytes);
    EXPECT_EQ(device->TotalStats().current_bytes - total, kBytes);
    EXPECT_EQ(device->Stats().current_bytes, kBytes);
    device->TakeFromOperations(made);
    device->TakeFromOperations(made);
    device->TakeFromOperations(own);
    EXPECT_EQ(device->OperationStats().current_bytes, before);
    EXPECT_EQ(device->TotalStats().current_bytes - total, kBytes) << "still there";
  }
  EXPECT_EQ(device->OperationStats().current_bytes, before);
  EXPECT_EQ(device->TotalStats().current_bytes, total);
  EXPECT_NEAR(device->OperationStats().peak_bytes - before, kBytes, 64) << "and the one of `own + 1`";
  // Products in BF16 ask for memory in a way of their own.
  const at::Tensor narrow = own.view({250, 400}).to(at::kBFloat16);
  EXPECT_EQ(at::mm(narrow, narrow.t()).size(0), 250);
}

TEST(CpuDevice, TensorsMayOutliveTheDevice) {
  auto device = Open("CPU").value();
  at::Tensor t = device->Empty({4}, at::kFloat);
  device->ResizeStorage(t, 0);
  auto other = Open("CPU").value();
  other->ResizeStorage(t, 16);  // goes through the allocator of its own device
  device.reset();
  t.fill_(2);
  EXPECT_EQ(t.sum().item<float>(), 8);
}

TEST(CpuDevice, ResizeToZeroFreesAndKeepsSavedGraphsExact) {
  auto device = Open("CPU").value();
  at::Tensor weight = device->Empty({3, 3}, at::kFloat);
  weight.copy_(at::arange(9).view({3, 3}).to(at::kFloat));
  at::Tensor kept = weight.clone();
  weight.requires_grad_(true);
  at::Tensor x = at::ones({2, 3}).requires_grad_(true);
  at::Tensor y = at::matmul(x, weight).sum();  // saves weight for the gradient of x
  device->ResizeStorage(weight, 0);
  EXPECT_EQ(weight.data_ptr(), nullptr);
  EXPECT_EQ(device->Stats().current_bytes, 0);
  device->ResizeStorage(weight, 36);
  weight.variable_data().copy_(kept);
  y.backward();
  EXPECT_TRUE(at::equal(x.grad(), kept.sum(1).expand({2, 3})));
  EXPECT_EQ(device->Stats().current_bytes, 36);
}

TEST(CpuDevice, ResizeKeepsTheCommonPart) {
  auto device = Open("CPU").value();
  at::Tensor t = device->Empty({4}, at::kInt);
  t.copy_(at::arange(4));
  device->ResizeStorage(t, 32);
  EXPECT_EQ(device->Stats().current_bytes, 32);
  device->ResizeStorage(t, 16);
  EXPECT_TRUE(at::equal(t, at::arange(4).to(at::kInt)));
  EXPECT_THROW(device->ResizeStorage(t.narrow(0, 1, 1), 0), c10::Error);
}

TEST(CpuDevice, EventsArePast) {
  auto device = Open("CPU").value();
  auto event = device->Record();
  device->Synchronize();
  EXPECT_TRUE(event->Done());
  event->Synchronize();
  event->Order();
  const int64_t operations = device->OperationStats().current_bytes, own = device->Stats().current_bytes;
  {
    const at::Tensor host = device->PinnedEmpty({2}, at::kFloat);
    EXPECT_EQ(host.numel(), 2);
    EXPECT_EQ(device->HostStats().current_bytes, 8);
    EXPECT_EQ(device->OperationStats().current_bytes, operations);
    EXPECT_EQ(device->Stats().current_bytes, own);
  }
  EXPECT_EQ(device->HostStats().current_bytes, 0);
  EXPECT_EQ(device->HostStats().peak_bytes, 8);
}

TEST(OpenDevice, NeverFallsBackToTheCpu_Bug58) {
  auto cuda = Open("CUDA");
  ASSERT_FALSE(cuda.has_value());
  EXPECT_EQ(cuda.error().code, ErrorCode::kFailedPrecondition);
  auto unknown = Open("TPU");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace trainyard::device
