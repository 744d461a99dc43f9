#include "operator/sizing/memory_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "operator/sizing/memory_names.h"
#include "operator/sizing/reference_shapes.h"

namespace trainyard::sizing {
namespace {

using testing::HasSubstr;

MemoryInput Good() {
  MemoryInput in;
  in.shape = ReferenceShapes().front();
  in.ranks = 8;
  return in;
}

void ExpectRefused(const MemoryInput& in, const std::string& why) {
  const Status checked = Check(in);
  ASSERT_FALSE(checked) << why;
  EXPECT_EQ(checked.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(checked.error().message, HasSubstr(why));
}

TEST(MemoryInput, WhatCannotBeIsRefusedWithOneLine) {
  EXPECT_TRUE(Check(Good()));
  MemoryInput in = Good();
  in.shape.heads = 0;
  ExpectRefused(in, "at least one layer");
  in = Good();
  in.sequence = 0;
  ExpectRefused(in, "must be at least 1");
  in = Good();
  in.ranks = std::numeric_limits<int64_t>::max();
  ExpectRefused(in, "between 1 and 100M");
  in = Good();
  in.shard_ranks = 3;
  ExpectRefused(in, "shards over 3 ranks do not divide the 8 ranks");
  in = Good();
  in.tensor_parallel = 3;
  ExpectRefused(in, "tensor parallel degree 3 does not divide the 32 attention heads");
  in = Good();
  in.pipeline_parallel = 23;
  ExpectRefused(in, "pipeline parallel degree 23 is not between 1 and the 22 layers");
  in = Good();
  in.adapter = {.type = AdapterType::kLora, .rank = 0};
  ExpectRefused(in, "adapter rank 0");
  in.adapter = {.type = AdapterType::kLora, .rank = 8, .targets = {"qproj"}};
  ExpectRefused(in, "no matrix of the model's blocks is called 'qproj'; there are q_proj, k_proj, v_proj, o_proj");
}

TEST(MemoryInput, CorrectionsStayInTheirBounds) {
  const Corrections c = Bounded(
      {.states = 0.1, .activations = 7, .buffers = std::nan(""), .overhead = std::numeric_limits<double>::infinity()});
  EXPECT_EQ(c.states, 0.5);
  EXPECT_EQ(c.activations, 2);
  EXPECT_EQ(c.buffers, 1);
  EXPECT_EQ(c.overhead, 1);
}

TEST(MemoryInput, NamesGoBothWays) {
  for (Optimizer o : {Optimizer::kAdamW, Optimizer::kAdamW8bit, Optimizer::kAdafactor, Optimizer::kSgd}) {
    EXPECT_EQ(ParseOptimizer(ToString(o)).value(), o);
  }
  for (Offload o : {Offload::kNone, Offload::kCpu, Offload::kNvme}) EXPECT_EQ(ParseOffload(ToString(o)).value(), o);
  for (AdapterType a : {AdapterType::kNone, AdapterType::kLora, AdapterType::kQLora}) {
    EXPECT_EQ(ParseAdapterType(ToString(a)).value(), a);
  }
  for (Checkpointing c : {Checkpointing::kNone, Checkpointing::kSelective, Checkpointing::kFull}) {
    EXPECT_EQ(ParseCheckpointing(ToString(c)).value(), c);
  }
  EXPECT_EQ(ParseAdapterType("qlora").value(), AdapterType::kQLora);
  EXPECT_EQ(ParseOffload("disk").error().message, "'disk' is no offload; there are None, CPU, NVMe");
}

}  // namespace
}  // namespace trainyard::sizing
