// The engine's state as checkpoints name it, and what is read into it: parameters in NF4 are quantised on the way in,
// some rows at a time.
#include "trainer/loop/live_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>
#include <set>
#include <string>

#include "tests/trainer/engine/harness.h"
#include "trainer/quant/nf4_tensor.h"

namespace trainyard::loop {
namespace {

using engine::Offload;
using engine::ParamSpec;
using engine::testing::RunRanks;

// A packed parameter of more numbers than are read at once, a frozen one as it is, and trained ones of which AdamW8bit
// packs the first.
std::vector<engine::UnitSpec> Units() {
  ParamSpec packed{"packed.weight", {2100, 4100}}, frozen{"frozen.weight", {3, 5}}, large{"large.weight", {15, 300}},
      bias{"bias", {4}};
  packed.frozen = packed.nf4 = frozen.frozen = true;
  return {{"unit", {packed, large, frozen, bias}}};
}

std::map<std::string, at::Tensor> Source() {
  std::map<std::string, at::Tensor> source;
  at::manual_seed(8);
  const std::vector<engine::UnitSpec> units = Units();
  for (const ParamSpec& spec : units[0].params) source[spec.name] = at::randn(spec.shape);
  return source;
}

// Fills slices of the source; counts the most bytes that were asked for at once.
Status ReadFrom(const std::map<std::string, at::Tensor>& source, const std::vector<checkpoint::TensorSlice>& slices,
                int64_t& most) {
  int64_t bytes = 0;
  for (const checkpoint::TensorSlice& slice : slices) {
    const at::Tensor rows = source.at(slice.name).narrow(0, slice.offset[0], slice.shape[0]).contiguous();
    const at::Tensor as = slice.dtype == "BF16" ? rows.to(at::kBFloat16) : rows;
    EXPECT_TRUE(slice.dtype == "BF16" || slice.dtype == "F32") << slice.dtype;
    std::memcpy(slice.data, as.const_data_ptr(), as.nbytes());
    bytes += static_cast<int64_t>(as.nbytes());
  }
  most = std::max(most, bytes);
  return {};
}

TEST(LiveState, Nf4IsQuantisedWhileItIsRead) {
  const auto source = Source();
  for (const int world : {1, 3}) {
    for (const Offload offload : {Offload::kNone, Offload::kNvme}) {
      RunRanks(world, [&](int, device::Device& device, dist::Comm& comm) {
        engine::Engine engine(device, comm, Units(),
                              {.stage = 3,
                               .compute_dtype = at::kBFloat16,
                               .offload = offload,
                               .offload_place = engine::testing::ScratchPlace()});
        int64_t most = 0;
        const Status read =
            ReadInto(engine, Part::kFrozen, [&](const auto& slices) { return ReadFrom(source, slices, most); });
        ASSERT_TRUE(read) << read.error().message;
        EXPECT_LE(most, 32 << 20);
        for (const engine::ShardView& shard : engine.Shards()) {
          if (!shard.name.starts_with("packed")) continue;
          const at::Tensor rows = source.at(shard.name).narrow(0, shard.rows.lo, shard.rows.size());
          EXPECT_TRUE(at::equal(shard.master, quant::Nf4Quantise(rows)));
        }
      });
    }
  }
}

TEST(LiveState, ANumberThatIsNotFiniteIsNamed) {
  auto source = Source();
  source.at("packed.weight")[2099][7] = std::numeric_limits<float>::infinity();
  RunRanks(1, [&](int, device::Device& device, dist::Comm& comm) {
    engine::Engine engine(device, comm, Units(), {});
    int64_t most = 0;
    const Status read =
        ReadInto(engine, Part::kFrozen, [&](const auto& slices) { return ReadFrom(source, slices, most); });
    ASSERT_FALSE(read);
    EXPECT_THAT(read.error().message,
                ::testing::StartsWith("packed.weight has a number that is not finite in rows 2046 to 2099"));
  });
}

TEST(LiveState, OfEachOptimizerHasItsNamesAndTypes) {
  const auto tensors = [](const optim::Options& optimizer) {
    std::set<std::string> all;
    std::mutex mutex;
    RunRanks(4, [&](int, device::Device& device, dist::Comm& comm) {  // a rank that owns no row of some
      engine::Engine engine(device, comm, Units(), {.stage = 2, .optimizer = optimizer});
      const LiveState state = LiveStateOf(engine);
      const std::lock_guard lock(mutex);
      for (const auto* group : {&state.model, &state.optim}) {
        for (const LiveTensor& t : *group) {
          EXPECT_EQ(t.bytes, static_cast<int64_t>(t.live.nbytes()));
          all.insert(t.slice.name + " " + t.slice.dtype + " " + c10::str(c10::IntArrayRef(t.slice.global_shape)));
        }
      }
    });
    return all;
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(tensors(optim::AdamW8bitOptions{}),
              ElementsAre("bias F32 [4]", "large.weight F32 [15, 300]", "state.bias.exp_avg F32 [4]",
                          "state.bias.exp_avg_sq F32 [4]", "state.large.weight.exp_avg_8bit U8 [15, 308]",
                          "state.large.weight.exp_avg_sq_8bit U8 [15, 308]"));
  EXPECT_THAT(tensors(optim::AdafactorOptions{}),
              ElementsAre("bias F32 [4]", "large.weight F32 [15, 300]", "state.bias.variance F32 [4]",
                          "state.large.weight.col_var F32 [300]", "state.large.weight.row_var F32 [15]"));
}

}  // namespace
}  // namespace trainyard::loop
