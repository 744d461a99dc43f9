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

TEST(ProgressFromJson, ReadsHowSavesAndLoadsGo) {
  json status = {
      {"contract", 1},
      {"jobUid", "u"},
      {"stateHash", "aa"},
      {"loadedStateHash", "bb"},
      {"restored", {{"seconds", 1.5}, {"bytesRead", 300}, {"mostBytesRead", 77}, {"firstStepSeconds", 0.25}}},
      {"checkpoint",
       {{"step", 20},
        {"bytes", 123},
        {"seconds", 0.5},
        {"time", "t"},
        {"stallSeconds", 0.01},
        {"writeSeconds", 0.4},
        {"verifySeconds", 0.3},
        {"verified", false},
        {"damage", "step 5: bad"},
        {"everySeconds", 600},
        {"costSeconds", 0.02},
        {"nextStep", 40},
        {"freeBytes", 1000},
        {"directoryBytes", 369},
        {"failures", 2},
        {"failure", "step 30, rank 1: disk full"}}}};
  const Result<ProgressReport> report = ProgressFromJson(status, "u");
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->checkpoint, (api::CheckpointStatus{.step = 20,
                                                       .bytes = 123,
                                                       .seconds = 0.5,
                                                       .time = "t",
                                                       .stall_seconds = 0.01,
                                                       .write_seconds = 0.4,
                                                       .verify_seconds = 0.3,
                                                       .verified = false,
                                                       .damage = "step 5: bad",
                                                       .every_seconds = 600,
                                                       .cost_seconds = 0.02,
                                                       .next_step = 40,
                                                       .free_bytes = 1000,
                                                       .directory_bytes = 369,
                                                       .failures = 2,
                                                       .failure = "step 30, rank 1: disk full"}));
  EXPECT_EQ(report->progress.state_hash, "aa");
  EXPECT_EQ(report->progress.loaded_state_hash, "bb");
  EXPECT_EQ(report->progress.load_seconds, 1.5);
  EXPECT_EQ(report->progress.load_bytes, 77);
  status["checkpoint"]["verified"] = "yes";
  EXPECT_FALSE(ProgressFromJson(status, "u").has_value());
  status["checkpoint"].erase("verified");
  EXPECT_FALSE(ProgressFromJson(status, "u")->checkpoint->verified.has_value()) << "absent means unknown";
}

TEST(ProgressFromJson, ReadsWhereTheTimeGoes) {
  json status = {{"contract", 1},
                 {"jobUid", "u"},
                 {"validationPerplexity", 12.5},
                 {"mfu", 0.375},
                 {"dataSeconds", 0.5},
                 {"computeSeconds", 2},
                 {"communicationSeconds", 0.25},
                 {"optimizerSeconds", 0.125},
                 {"rankMemory", {{"most", 9}, {"mostRank", 3}, {"least", 8}}},
                 {"lossSpike", {{"step", 7}, {"loss", 9.5}, {"median", 2.5}}},
                 {"skippedSteps", 2}};
  const Result<ProgressReport> report = ProgressFromJson(status, "u");
  ASSERT_TRUE(report.has_value()) << report.error().message;
  const api::Progress& p = report->progress;
  EXPECT_EQ(p.validation_perplexity, 12.5);
  EXPECT_EQ(p.mfu, 0.375);
  EXPECT_EQ(p.step_time, (api::StepTime{0.5, 2, 0.25, 0.125, {}}));
  EXPECT_EQ(p.rank_memory, (api::RankMemory{9, 3, 8}));
  EXPECT_EQ(p.loss_spike, (api::LossSpike{7, 9.5, 2.5}));
  EXPECT_EQ(p.skipped_steps, 2);
  status.erase("computeSeconds");  // a trainer of before there was a split
  EXPECT_FALSE(ProgressFromJson(status, "u")->progress.step_time.has_value());
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
