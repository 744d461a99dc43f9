#include "operator/controller/progress_json.h"

#include <limits>

#include <gtest/gtest.h>

namespace trainyard::controller {
namespace {

using nlohmann::json;

TEST(ProgressFromJson, ReadsTheContract) {
  const json status = {{"contract", 1},
                       {"jobUid", "u"},
                       {"attempt", 3},
                       {"phase", "Training"},
                       {"step", 40},
                       {"steps", 400},
                       {"loss", 2.5},
                       {"validationLoss", nullptr},
                       {"worldSize", 4},
                       {"resumedFromStep", 20},
                       {"parameterHash", "ab"},
                       {"checkpoint", {{"step", 20}, {"bytes", 123}, {"seconds", 0.5}, {"time", "t"}}}};
  const Result<ProgressReport> report = ProgressFromJson(status, "u");
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->attempt, 3);
  EXPECT_EQ(report->progress.step, 40);
  EXPECT_EQ(report->progress.loss, 2.5);
  EXPECT_FALSE(report->progress.validation_loss.has_value());
  EXPECT_EQ(report->progress.resumed_from_step, 20);
  EXPECT_EQ(report->progress.trainer_phase, "Training");
  ASSERT_TRUE(report->checkpoint.has_value());
  EXPECT_EQ(report->checkpoint->bytes, 123);
}

TEST(ProgressFromJson, ReadsWhatTheTrainerHeld) {
  json status = {{"contract", 1},
                 {"jobUid", "u"},
                 {"memory",
                  {{"params", 1},
                   {"gradients", 2},
                   {"master", 3},
                   {"optimizer", 4},
                   {"buffers", 5},
                   {"activationsPeak", 6},
                   {"peakTotal", 7}}}};
  const Result<ProgressReport> report = ProgressFromJson(status, "u");
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->progress.memory, (api::MemoryStatus{1, 2, 3, 4, 5, 6, 7}));
  status["memory"]["optimizer"] = "four";
  EXPECT_FALSE(ProgressFromJson(status, "u").has_value());
  status.erase("memory");
  EXPECT_FALSE(ProgressFromJson(status, "u")->progress.memory.has_value());
}

TEST(ProgressFromJson, RefusesWhatIsNotForThisJob) {
  EXPECT_EQ(ProgressFromJson({{"contract", 1}, {"jobUid", "other"}}, "u").error().code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(ProgressFromJson({{"contract", 99}, {"jobUid", "u"}}, "u").error().code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(ProgressFromJson(json::array(), "u").error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(ProgressFromJson({{"contract", 1}, {"jobUid", "u"}, {"step", "x"}}, "u").error().message,
            "progress: step: must be an integer of at most 63 bits");
}

TEST(ProgressFromJson, LeavesNonFiniteNumbersOut) {
  const json status = {{"contract", 1}, {"jobUid", "u"}, {"loss", std::numeric_limits<double>::infinity()}};
  const Result<ProgressReport> report = ProgressFromJson(status, "u");
  ASSERT_TRUE(report.has_value());
  EXPECT_FALSE(report->progress.loss.has_value());
}

}  // namespace
}  // namespace trainyard::controller
