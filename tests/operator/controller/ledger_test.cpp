#include "operator/controller/ledger.h"

#include <thread>

#include <gtest/gtest.h>

namespace trainyard::controller {
namespace {

class LedgerTest : public testing::Test {
 protected:
  LedgerTest() {
    auto node = std::make_shared<api::NodeSnapshot>();
    node->name = "a";
    node->ready = true;
    node->conditions["Ready"] = "True";
    node->labels = {{"nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"}};
    node->allocatable = {{api::kGpuResource, 8}};
    node_ = node;
    ledger_.SetNode(node_);
  }
  Ledger::View View() {
    return {ledger_, [this](const std::string& name) { return name == "a" ? node_ : nullptr; }};
  }
  int64_t Free() {
    Ledger::View view = View();
    return view.Yard().Find("a")->free;
  }

  Ledger ledger_{placement::YardOptions()};
  Ledger::NodePtr node_;
};

TEST_F(LedgerTest, WhatAWriteUnderWayTakesIsTakenForAllOthers) {
  Ledger::View view = View();
  EXPECT_EQ(view.Yard().Find("a")->free, 8);
  view.Reserve("job", {{"job", 1, "a", 6}});
  view.Release();
  EXPECT_EQ(Free(), 2);
  // An older version of the job that the watch brings meanwhile frees nothing.
  ledger_.SetClaims("job", {});
  EXPECT_EQ(Free(), 2);
  ledger_.Settle("job", {{"job", 1, "a", 6}});
  EXPECT_EQ(Free(), 2);
  ledger_.SetClaims("job", {});
  EXPECT_EQ(Free(), 8);
}

TEST_F(LedgerTest, ARefusedWriteGivesBackWhatItReserved) {
  ledger_.SetClaims("job", {{"job", 1, "a", 2}});
  Ledger::View view = View();
  view.Reserve("job", {{"job", 2, "a", 4}});
  view.Release();
  EXPECT_EQ(Free(), 2) << "the attempt that is there and the one that may come";
  ledger_.Settle("job", {{"job", 1, "a", 2}});
  EXPECT_EQ(Free(), 6);
}

TEST_F(LedgerTest, ABookingThatIsBothSettledAndReservedCountsOnce) {
  ledger_.SetClaims("job", {{"job", 1, "a", 3}});
  Ledger::View view = View();
  view.Reserve("job", {{"job", 1, "a", 3}});
  view.Release();
  EXPECT_EQ(Free(), 5);
}

TEST_F(LedgerTest, NobodyElseLooksWhileAViewDecides) {
  constexpr int kJobs = 16;
  std::atomic<int> placed{0};
  {
    std::vector<std::jthread> deciders;
    for (int i = 0; i < kJobs; ++i) {
      deciders.emplace_back([&, uid = "job-" + std::to_string(i)] {
        Ledger::View view = View();
        if (view.Yard().Find("a")->free < 2) return;
        view.Reserve(uid, {{uid, 1, "a", 2}});
        ++placed;
      });
    }
  }
  EXPECT_EQ(placed, 4);
  EXPECT_EQ(Free(), 0);
}

TEST_F(LedgerTest, CountsGpusByProductAndFindsNodes) {
  const auto use = std::make_shared<const placement::PodUse>(placement::PodUse{"a", "", 0, 3, {}});
  ledger_.ChangePod(nullptr, use);
  EXPECT_EQ(ledger_.ByProduct().at("H100-SXM").used, 3);
  EXPECT_EQ(ledger_.ByProduct().at("H100-SXM").free, 5);
  Ledger::View view = View();
  EXPECT_EQ(view.FindNode("a"), node_.get());
  EXPECT_EQ(view.FindNode("b"), nullptr);
  ledger_.RemoveNode("a");
  EXPECT_TRUE(ledger_.ByProduct().empty());
}

}  // namespace
}  // namespace trainyard::controller
