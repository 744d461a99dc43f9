// What a save is given of a state that is in memory or on disk, copied before or written in place, is the state of the
// step that it is of, byte by byte, while the next step goes on; and a disk that fails ends the save, not the wait.
#include "trainer/loop/snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <string>
#include <thread>

#include "tests/trainer/engine/harness.h"
#include "trainer/engine/offload_file.h"
#include "trainer/loop/live_state.h"

namespace trainyard::loop {
namespace {

using engine::Offload;

engine::EngineOptions OptionsOf(Offload offload, engine::OffloadCalls* calls = nullptr) {
  engine::EngineOptions options;
  options.stage = 3;
  options.compute_dtype = at::kBFloat16;
  options.offload = offload;
  options.offload_place = {.directory = ::testing::TempDir(), .calls = calls};
  options.seed = 3;
  return options;
}

std::vector<engine::UnitSpec> Units() { return model::LlamaUnits(engine::testing::SmallLlama(true)); }

void Step(engine::Engine& engine, model::Llama& llama, int64_t step) {
  engine.BeginStep();
  engine.Backward(llama.LossSum(engine::testing::Tokens(2, 7, 19, static_cast<uint64_t>(step))), true);
  engine.FinishBackward();
  engine.Step(1e-2, 1e-2, step);
}

std::map<std::string, std::string> StateOf(engine::Engine& engine) {
  std::map<std::string, std::string> bytes;
  const LiveState state = LiveStateOf(engine);
  for (const auto* group : {&state.model, &state.optim}) {
    for (const LiveTensor& tensor : *group) {
      std::string& to = bytes[tensor.slice.name];
      to.resize(static_cast<size_t>(tensor.bytes));
      engine.CopyShard(tensor.unit, tensor.index, tensor.tensor, to.data());
    }
  }
  return bytes;
}

// On the save's thread: everything in its order, to the end or the first error.
std::string Write(Snapshot& snapshot, std::map<std::string, std::string>& written) {
  std::string error;
  if (snapshot.bytes_in_place() == 0) snapshot.CopyAll();
  for (const auto* group : {&snapshot.model(), &snapshot.optim()}) {
    for (const checkpoint::TensorSlice& slice : *group) {
      if (!error.empty()) break;
      const Result<const void*> bytes = snapshot.Bytes(slice);
      if (!bytes) {
        error = bytes.error().message;
        break;
      }
      int64_t size = *checkpoint::DtypeBytes(slice.dtype);
      for (const int64_t n : slice.shape) size *= n;
      written[slice.name].assign(static_cast<const char*>(*bytes), static_cast<size_t>(size));
    }
  }
  snapshot.Finished();
  return error;
}

TEST(Snapshot, IsTheStateOfItsStepWhereverThatIs) {
  for (const Offload offload : {Offload::kNone, Offload::kCpu, Offload::kNvme}) {
    for (const int64_t budget : {-1, 0, 9000}) {
      SCOPED_TRACE("offload " + std::to_string(static_cast<int>(offload)) + ", budget " + std::to_string(budget));
      engine::testing::RunRanks(1, [&](int, device::Device& device, dist::Comm& comm) {
        engine::Engine engine(device, comm, Units(), OptionsOf(offload));
        model::Llama llama(engine::testing::SmallLlama(true), engine);
        Snapshot snapshot(device, budget);
        engine.BeforeUpdate([&](int unit) { snapshot.BeforeUpdate(unit); });
        for (int64_t step = 1; step <= 3; ++step) {
          Step(engine, llama, 2 * step - 1);
          const auto want = StateOf(engine);
          std::map<std::string, std::string> got;
          std::string error;
          snapshot.Begin(engine, /*in_place=*/step == 3);
          EXPECT_EQ(snapshot.bytes_in_place() > 0, budget >= 0 || step == 3);
          std::thread writer([&] { error = Write(snapshot, got); });
          if (step == 3) {
            writer.join();
          } else {
            Step(engine, llama, 2 * step);
            writer.join();
          }
          EXPECT_EQ(error, "");
          EXPECT_EQ(got, want) << "step " << step;
        }
        engine.BeforeUpdate(nullptr);
      });
    }
  }
}

// Nothing but an update waits for what is written in place: it alone changes the state.
TEST(Snapshot, TheNextPassesGoOnBeforeAnythingIsWritten) {
  for (const int64_t budget : {0, 9000}) {
    engine::testing::RunRanks(1, [&](int, device::Device& device, dist::Comm& comm) {
      engine::Engine engine(device, comm, Units(), OptionsOf(Offload::kNone));
      model::Llama llama(engine::testing::SmallLlama(true), engine);
      Snapshot snapshot(device, budget);
      engine.BeforeUpdate([&](int unit) { snapshot.BeforeUpdate(unit); });
      Step(engine, llama, 1);
      const auto want = StateOf(engine);
      snapshot.Begin(engine, /*in_place=*/false);
      EXPECT_GT(snapshot.bytes_in_place(), 0);
      EXPECT_TRUE(snapshot.Holds(0));
      engine.BeginStep();
      engine.Backward(llama.LossSum(engine::testing::Tokens(2, 7, 19, 2)), true);
      engine.FinishBackward();
      std::map<std::string, std::string> got;
      std::string error;
      std::thread writer([&] { error = Write(snapshot, got); });  // only now
      engine.Step(1e-2, 1e-2, 2);
      writer.join();
      EXPECT_EQ(error, "");
      EXPECT_EQ(got, want);
      EXPECT_FALSE(snapshot.Holds(0));
      engine.BeforeUpdate(nullptr);
    });
  }
}

// A save whose copies nobody comes to help with ends all the same.
TEST(Snapshot, TheSaveCopiesByItself) {
  engine::testing::RunRanks(1, [&](int, device::Device& device, dist::Comm& comm) {
    engine::Engine engine(device, comm, Units(), OptionsOf(Offload::kNone));
    model::Llama llama(engine::testing::SmallLlama(true), engine);
    Step(engine, llama, 1);
    const auto want = StateOf(engine);
    for (const int64_t budget : {-1, 0, 9000}) {
      Snapshot snapshot(device, budget);
      snapshot.Begin(engine, /*in_place=*/false);
      std::map<std::string, std::string> got;
      EXPECT_EQ(Write(snapshot, got), "");
      EXPECT_EQ(got, want) << budget;
    }
  });
}

class BrokenDisk final : public engine::OffloadCalls {
 public:
  ssize_t Read(int fd, void* to, size_t bytes, off_t at) override {
    if (!broken) return OffloadCalls::Read(fd, to, bytes, at);
    errno = EIO;
    return -1;
  }
  std::atomic<bool> broken = false;
};

TEST(Snapshot, ADiskThatFailsEndsTheSaveAndThenTheStep) {
  for (const int64_t budget : {-1, 0}) {
    engine::testing::RunRanks(1, [&](int, device::Device& device, dist::Comm& comm) {
      BrokenDisk disk;
      engine::Engine engine(device, comm, Units(), OptionsOf(Offload::kNvme, &disk));
      model::Llama llama(engine::testing::SmallLlama(true), engine);
      Snapshot snapshot(device, budget);
      engine.BeforeUpdate([&](int unit) { snapshot.BeforeUpdate(unit); });
      Step(engine, llama, 1);
      disk.broken = true;
      std::map<std::string, std::string> got;
      std::string error;
      snapshot.Begin(engine, /*in_place=*/false);
      std::thread writer([&] { error = Write(snapshot, got); });
      EXPECT_THROW(Step(engine, llama, 2), engine::OffloadError);
      writer.join();
      EXPECT_THAT(error, ::testing::AllOf(::testing::HasSubstr("offload of rank 0"),
                                          ::testing::HasSubstr("Input/output error")));
      engine.BeforeUpdate(nullptr);
    });
  }
}

}  // namespace
}  // namespace trainyard::loop
