// What `trainyard plan --emit` writes, as far as our own readers can tell; tests/python/plan_emit_test.py gives the
// files to the tools they are for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include <nlohmann/json.hpp>

#include "operator/api/defaults.h"
#include "operator/api/json.h"
#include "operator/api/validation.h"
#include "operator/api/yaml.h"
#include "operator/cli/exit_codes.h"
#include "operator/cli/plan/plan_command.h"
#include "operator/sizing/plan.h"

namespace trainyard::cli {
namespace {

using ::testing::HasSubstr;

std::string Output(const std::string& arguments, int expected_exit = kExitOk) {
  int exit_code = -1;
  std::ostringstream out, err;
  CLI::App app("trainyard");
  AddPlanCommand(app, exit_code, out, err);
  app.parse("plan " + arguments);
  EXPECT_EQ(exit_code, expected_exit) << arguments << "\n" << err.str();
  return exit_code == kExitOk ? out.str() : err.str();
}

api::TrainingJob JobIn(const std::string& text) {
  auto documents = api::LoadYaml(text, "emitted");
  EXPECT_TRUE(documents) << documents.error().message;
  if (!documents || documents->size() != 1) return {};
  auto job = api::JobFromJson((*documents)[0]);
  EXPECT_TRUE(job) << job.error().message;
  if (!job) return {};
  api::ApplyDefaults(*job);
  EXPECT_THAT(api::Validate(*job), testing::IsEmpty());
  return *job;
}

TEST(PlanEmit, ATrainingJobIsValidAndGetsTheSamePlanFromTheOperator) {
  for (const char* arguments : {"--model 7B --product H100-SXM --tokens 1B", "--model 34B --product H100-SXM",
                                "--model 1B --product RTX-4090 --precision FP32 --count 4",
                                "--model 13B --product A100-80GB-SXM --batch 64 --sequence 2048"}) {
    SCOPED_TRACE(arguments);
    const auto plan = nlohmann::json::parse(Output(std::string(arguments) + " -o json"));
    const auto& option = plan.at("options").at(plan.at("chosen").get<size_t>());
    const api::TrainingJob job = JobIn(Output(std::string(arguments) + " --emit trainingjob"));
    EXPECT_EQ(job.spec.gpus.count, option.at("gpus"));
    auto status = sizing::PlanJob(job, {{.product = option.at("product").get<std::string>(), .nodes = 64}});
    ASSERT_TRUE(status) << status.error().message;
    EXPECT_EQ(status->gpus, option.at("gpus"));
    EXPECT_EQ(status->per_node, option.at("perNode"));
    EXPECT_EQ(status->product, option.at("product"));
    EXPECT_EQ(status->strategy, option.at("strategy"));
    EXPECT_EQ(status->micro_batch_size, option.at("microBatch"));
    EXPECT_EQ(status->bytes_per_gpu, option.at("perGPU").at("total"));
  }
}

TEST(PlanEmit, AJobKeepsWhatItHad) {
  const std::string path = std::string(TRAINYARD_SOURCE_DIR) + "/docs/examples/own-program.yaml";
  const api::TrainingJob job = JobIn(Output("--job " + path + " --product H100-SXM --emit trainingjob"));
  EXPECT_EQ(job.meta.name, "finetune-7b");
  EXPECT_EQ(job.spec.image, "registry.example.com/me/finetune:1");
  EXPECT_EQ(job.spec.command, (std::vector<std::string>{"torchrun", "train.py"}));
  EXPECT_EQ(job.spec.volumes.size(), 1u);
  EXPECT_EQ(job.spec.gpus.products, std::vector<std::string>{"H100-SXM"});
  EXPECT_GT(job.spec.gpus.count, 0);
}

TEST(PlanEmit, DeepspeedBatchesAgree) {
  const auto config =
      nlohmann::json::parse(Output("--model 7B --product H100-SXM --count 4 --strategy ZeRO2 --emit deepspeed"));
  EXPECT_EQ(config.at("zero_optimization").at("stage"), 2);
  EXPECT_EQ(config.at("train_batch_size"), 512);
  EXPECT_EQ(config.at("train_batch_size").get<int64_t>(),
            4 * config.at("train_micro_batch_size_per_gpu").get<int64_t>() *
                config.at("gradient_accumulation_steps").get<int64_t>());
}

TEST(PlanEmit, AccelerateQuotesWhatYamlWouldMisread) {
  const std::string text = Output("--model 1B --product A100-80GB-SXM --precision FP32 --emit accelerate");
  EXPECT_THAT(text, HasSubstr("mixed_precision: \"no\""));
}

TEST(PlanEmit, WhatCannotBeSaidIsAnError) {
  EXPECT_THAT(Output("--model 34B --product RTX-4090 --count 1-8 --emit torchrun", kExitBadInput),
              HasSubstr("--emit: nothing is chosen, so there is nothing to emit"));
  EXPECT_THAT(Output("--model 7B --product RTX-4090 --adapter QLoRA --emit trainingjob", kExitBadInput),
              HasSubstr("--emit: a TrainingJob has no field for --adapter QLoRA"));
  EXPECT_THAT(Output("--model 7B --product H100-SXM --count 8 --tensor-parallel 2 --emit deepspeed", kExitBadInput),
              HasSubstr("--emit: only torchrun starts a program that splits matrices or layers by itself"));
}

}  // namespace
}  // namespace trainyard::cli
