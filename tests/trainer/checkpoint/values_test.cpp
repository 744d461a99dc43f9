// Values of tensors: pieces of a tensor (pieces.h), float formats (dtype.h), comparison of checkpoints (compare.h).
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/checkpoint/sample.h"
#include "trainer/checkpoint/compare.h"
#include "trainer/checkpoint/dtype.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/pieces.h"

namespace trainyard::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Pieces, FollowEachOtherInCOrderAndTileTheTensor) {
  const std::vector<std::vector<int64_t>> shapes = {{}, {1}, {7}, {37, 24}, {3, 5, 7}, {2, 1, 3, 1, 4}, {1, 1}, {9, 1}};
  for (const std::vector<int64_t>& shape : shapes) {
    const Box whole{std::vector<int64_t>(shape.size(), 0), shape};
    for (int64_t most : {1, 2, 5, 24, 25, 1000}) {
      int64_t next = 0;
      std::vector<Box> boxes;
      ASSERT_TRUE(ForEachPiece(shape, most, [&](const Box& box) -> Status {
        EXPECT_LE(box.elements(), most);
        const SharedRuns runs(whole, box, box);
        EXPECT_EQ(runs.count(), 1) << "contiguous";
        EXPECT_EQ(runs.At(0).a, next);
        next += box.elements();
        boxes.push_back(box);
        return {};
      }));
      EXPECT_EQ(next, whole.elements());
      EXPECT_EQ(TilingProblem(shape, boxes), "") << whole.ToString() << " in pieces of " << most;
    }
  }
}

TEST(Pieces, NothingOfAnEmptyTensorAndAnErrorEndsTheWalk) {
  int calls = 0;
  const auto count = [&](const Box&) -> Status {
    if (++calls == 2) return Fail(ErrorCode::kDataLoss, "enough");
    return {};
  };
  EXPECT_TRUE(ForEachPiece({4, 0}, 8, count));
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(ForEachPiece({4, 4}, 4, count).error().message, "enough");
  EXPECT_EQ(calls, 2);
}

TEST(Dtype, EveryHalfHasItsValue) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const int exponent = (half >> 10) & 31, fraction = half & 1023;
    double expected = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    if (exponent == 31) expected = fraction == 0 ? INFINITY : NAN;
    if (half & 0x8000) expected = -expected;
    double found = 0;
    ToDouble("F16", &half, 1, &found);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(found)) << bits;
    } else {
      ASSERT_EQ(std::bit_cast<uint64_t>(found), std::bit_cast<uint64_t>(expected)) << bits;
    }
  }
}

template <typename From>
uint16_t Bf16(const char* dtype, From value) {
  uint16_t out = 0;
  EXPECT_TRUE(ConvertFloats(dtype, &value, 1, "BF16", &out));
  return out;
}

TEST(Dtype, Bfloat16IsRoundedToNearestAndTiesToEven) {
  EXPECT_EQ(Bf16("F32", 1.0f), 0x3f80);
  EXPECT_EQ(Bf16("F32", 1.00390625f), 0x3f80) << "1 + 2^-8, a tie: down to the even one";
  EXPECT_EQ(Bf16("F32", 1.01171875f), 0x3f82) << "1 + 3 * 2^-8, a tie: up to the even one";
  EXPECT_EQ(Bf16("F32", 1.00390637f), 0x3f81) << "just above the tie";
  EXPECT_EQ(Bf16("F32", -3.4028235e38f), 0xff80) << "beyond the largest one";
  EXPECT_EQ(Bf16("F32", INFINITY), 0x7f80);
  EXPECT_EQ(Bf16("F32", -0.0f), 0x8000);
  EXPECT_EQ(Bf16("F32", 1e-45f), 0x0000);
  EXPECT_EQ(Bf16("F32", std::bit_cast<float>(0x7f800001u)) & 0x7fff, 0x7fc0) << "a NaN stays one";
  EXPECT_EQ(Bf16("F64", 1.00390625 + 1e-12), 0x3f81) << "not rounded twice";
  EXPECT_EQ(Bf16("F64", 1.00390625), 0x3f80);
  EXPECT_EQ(Bf16("F64", -1.00390625 - 1e-12), 0xbf81);
}

TEST(Dtype, NoBfloat16IsNearerThanTheOneThatIsTaken) {
  constexpr uint32_t kSeed = 20261130;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  for (int i = 0; i < 200000; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isfinite(value) || std::abs(value) > 3e38f) continue;
    const uint16_t taken = Bf16("F32", value);
    double found = 0, up = 0, down = 0;
    const uint16_t above = static_cast<uint16_t>(taken + 1), below = static_cast<uint16_t>(taken - 1);
    ToDouble("BF16", &taken, 1, &found);
    ToDouble("BF16", &above, 1, &up);
    ToDouble("BF16", &below, 1, &down);
    const double error = std::abs(found - value);
    if ((taken & 0x7fff) == 0) continue;  // its neighbours are on both sides of zero
    ASSERT_LE(error, std::abs(up - value)) << value;
    ASSERT_LE(error, std::abs(down - value)) << value;
    const bool tie = error == std::abs(up - value) || error == std::abs(down - value);
    ASSERT_TRUE(!tie || taken % 2 == 0) << value;
  }
}

template <typename From>
uint16_t F16(const char* dtype, From value) {
  uint16_t out = 0;
  EXPECT_TRUE(ConvertFloats(dtype, &value, 1, "F16", &out));
  return out;
}

TEST(Dtype, WhatIsTooLargeIsRefusedAndWhatIsNotFiniteStays) {
  const float infinity = INFINITY;
  std::vector<float> values = {1, infinity, NAN, 65519, -65519};  // 65520 is halfway between 65504 and what comes next
  std::vector<uint16_t> halves(values.size());
  const auto narrow = [&](const char* dtype) {
    const Status done = NarrowFloats("F32", values.data(), static_cast<int64_t>(values.size()), dtype, halves.data());
    return done ? "none" : done.error().message;
  };
  EXPECT_EQ(narrow("F16"), "none");
  EXPECT_EQ(halves, (std::vector<uint16_t>{0x3c00, 0x7c00, 0x7e00, 0x7bff, 0xfbff}));
  values[4] = -65520;
  EXPECT_EQ(narrow("F16"), "-65520 is too large for F16: take --dtype bfloat16 or float32");
  EXPECT_EQ(narrow("BF16"), "none");
  values[4] = std::numeric_limits<float>::max();
  EXPECT_EQ(narrow("BF16"), "3.40282e+38 is too large for BF16: take --dtype float32");
  EXPECT_EQ(FirstNotFinite("F32", values.data(), 5), 1);
  EXPECT_EQ(FirstNotFinite("F32", values.data(), 5, 2), 2);
  EXPECT_EQ(FirstNotFinite("F32", values.data(), 5, 3), std::nullopt);
  const double large = 1e300;
  float out = 0;
  EXPECT_EQ(NarrowFloats("F64", &large, 1, "F32", &out).error().message,
            "1e+300 is too large for F32: take an earlier checkpoint");
}

TEST(Dtype, EveryHalfComesBackFromFp32) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    float value = 0;
    ASSERT_TRUE(ConvertFloats("F16", &half, 1, "F32", &value));
    if (std::isnan(value)) {
      ASSERT_EQ(F16("F32", value) & 0x7e00, 0x7e00) << "a NaN stays one";
    } else {
      ASSERT_EQ(F16("F32", value), half);
    }
  }
}

TEST(Dtype, HalvesAreRoundedToNearestAndTiesToEven) {
  EXPECT_EQ(F16("F32", 1 + 0x1p-11f), 0x3c00) << "a tie: down to the even one";
  EXPECT_EQ(F16("F32", 1 + 3 * 0x1p-11f), 0x3c02) << "a tie: up to the even one";
  EXPECT_EQ(F16("F32", 1 + 0x1p-11f + 0x1p-20f), 0x3c01);
  EXPECT_EQ(F16("F64", 1 + 0x1p-11 + 0x1p-40), 0x3c01) << "not rounded twice";
  EXPECT_EQ(F16("F32", 65519.0f), 0x7bff);
  EXPECT_EQ(F16("F32", 65520.0f), 0x7c00) << "beyond the largest one";
  EXPECT_EQ(F16("F32", -65520.0f), 0xfc00);
  EXPECT_EQ(F16("F32", 0x1p-25f), 0x0000) << "half of the smallest one, a tie";
  EXPECT_EQ(F16("F32", 0x1.8p-24f), 0x0002);
  EXPECT_EQ(F16("F32", -0.0f), 0x8000);
  EXPECT_EQ(F16("F32", 0x1.ffep-15f + 0x1p-27f), 0x0400) << "up into the normal ones";
}

TEST(Dtype, WhatCannotBeConvertedIsRefused) {
  const float one = 1;
  float out = 0;
  EXPECT_EQ(ConvertFloats("I32", &one, 1, "F32", &out).error().message, "no conversion from I32 to F32");
  EXPECT_EQ(ConvertFloats("F32", &one, 1, "F8_E4M3", &out).error().code, ErrorCode::kInvalidArgument);
}

// ---- comparison ----------------------------------------------------------------------------------------

struct Values {
  std::string name, group = "model", dtype = "F32";
  std::vector<int64_t> shape;
  std::vector<float> floats;  // or, for BF16, the upper halves of these
};

class CompareTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(TakeOver(temp_.path(), fence_)); }

  Reader Save(int64_t step, std::vector<Values> tensors, const std::string& state = "{}") {
    SaveRequest request = SampleRequest(temp_.path(), step, fence_, 0, 1);
    std::vector<std::vector<uint16_t>> halves(tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      Values& t = tensors[i];
      void* data = t.floats.data();
      if (t.dtype == "BF16") {
        for (float x : t.floats) halves[i].push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16));
        data = halves[i].data();
      }
      (t.group == "model" ? request.model : request.optim)
          .push_back({t.name, t.dtype, t.shape, std::vector<int64_t>(t.shape.size(), 0), t.shape, data});
    }
    const Result<RankReport> report = WriteShards(request);
    EXPECT_TRUE(report) << report.error().message;
    const Result<CommitInfo> info = Commit(request, state, {report->manifest});
    EXPECT_TRUE(info) << info.error().message;
    Result<Reader> reader = Reader::Open(info->path);
    EXPECT_TRUE(reader) << reader.error().message;
    return std::move(*reader);
  }

  TempDirectory temp_{Storage::kMemory};
  const Fence fence_{"compare", 1, 0};
};

TEST_F(CompareTest, TheSameStateSavedByOtherRanksIsTheSame) {
  ASSERT_TRUE(SaveSample(temp_.path(), 7, fence_, 2));
  Result<Reader> two = Reader::Open(temp_.path() + "/step-00000007");
  TempDirectory other(Storage::kMemory);
  ASSERT_TRUE(TakeOver(other.path(), fence_));
  ASSERT_TRUE(SaveSample(other.path(), 7, fence_, 5));
  Result<Reader> five = Reader::Open(other.path() + "/step-00000007");
  const Result<Comparison> found = Compare(*two, *five);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_TRUE(found->same());
  EXPECT_EQ(found->tensors, 12);
  EXPECT_EQ(found->bytes, 3 * 4 * (37 * 24 + 24 * 24 + 7 * 100 + 3));
  EXPECT_THAT(found->train_state, IsEmpty());
}

TEST_F(CompareTest, SaysHowFarValuesAreApart) {
  Reader a = Save(1, {{.name = "w", .shape = {2, 3}, .floats = {1, 2, 3, -4, 0.0f, NAN}}}, R"({"step":1,"seed":3})");
  Reader b = Save(2, {{.name = "w", .shape = {2, 3}, .floats = {1, 2.5f, 3, 4, -0.0f, 1}}}, R"({"step":2,"seed":3})");
  const Result<Comparison> found = Compare(a, b);
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ(found->differences.size(), 1u);
  const TensorDifference& d = found->differences[0];
  EXPECT_EQ(d.elements, 6);
  EXPECT_EQ(d.different, 4) << "2.5, 4, the zero's sign, NaN";
  EXPECT_EQ(d.not_finite, 1);
  EXPECT_EQ(d.largest_absolute, 8);
  EXPECT_EQ(d.largest_relative, 2) << "8 over the larger of 4 and 4";
  EXPECT_THAT(found->train_state, ElementsAre("step"));
}

TEST_F(CompareTest, NamesWhatOnlyOneHasAndOtherShapesAndFormats) {
  Reader a = Save(1, {{.name = "gone", .shape = {1}, .floats = {1}},
                      {.name = "wider", .shape = {2}, .floats = {1, 2}},
                      {.name = "copied", .shape = {3}, .floats = {1, 1.00390625f, 5}},
                      {.name = "state.w.exp_avg", .group = "optim", .shape = {1}, .floats = {1}}});
  Reader b = Save(2, {{.name = "wider", .shape = {1, 2}, .floats = {1, 2}},
                      {.name = "copied", .dtype = "BF16", .shape = {3}, .floats = {1, 1.00390625f, 5}},
                      {.name = "new", .shape = {1}, .floats = {1}},
                      {.name = "state.w.exp_avg", .group = "optim", .shape = {1}, .floats = {2}}});
  const Result<Comparison> found = Compare(a, b, /*model_only=*/true);
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ(found->differences.size(), 4u);
  EXPECT_EQ(found->differences[0].name + ": " + found->differences[0].structure, "gone: only in the first");
  EXPECT_EQ(found->differences[1].structure, "[0:2] and [0:1, 0:2]");
  EXPECT_EQ(found->differences[2].dtypes, "F32 and BF16");
  EXPECT_EQ(found->differences[2].different, 1) << "compared by value";
  EXPECT_EQ(found->differences[2].largest_absolute, 0.00390625);
  EXPECT_EQ(found->differences[3].name + ": " + found->differences[3].structure, "new: only in the second");
  EXPECT_EQ(Compare(a, b)->differences.size(), 5u) << "the optimizer's as well";
}

TEST_F(CompareTest, ADamagedByteIsNoDifference) {
  ASSERT_TRUE(SaveSample(temp_.path(), 7, fence_, 1));
  ASSERT_TRUE(SaveSample(temp_.path(), 8, fence_, 1));
  const std::string file = temp_.path() + "/step-00000008/" + ShardPath("model", 0);
  FILE* raw = std::fopen(file.c_str(), "r+");
  ASSERT_NE(raw, nullptr);
  std::fseek(raw, 4096 + 11, SEEK_SET);
  std::fputc(0x5a, raw);
  std::fclose(raw);
  Result<Reader> a = Reader::Open(temp_.path() + "/step-00000007");
  Result<Reader> b = Reader::Open(temp_.path() + "/step-00000008");
  const Result<Comparison> found = Compare(*a, *b);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::kDataLoss);
  EXPECT_THAT(found.error().message, HasSubstr("step-00000008/model/shard-00001"));
}

}  // namespace
}  // namespace trainyard::checkpoint
