// What `trainyard plan --emit` writes, as far as our own readers can tell; tests/python/plan_emit_test.py gives the
// files to the tools they are for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
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

// The chosen option in JSON, without the sentence that names the methods it was preferred to.
nlohmann::json ChosenIn(const std::string& arguments) {
  const auto plan = nlohmann::json::parse(Output(arguments + " -o json"));
  auto option = plan.at("options").at(plan.at("chosen").get<size_t>());
  option.erase("why");
  option["parameters"] = plan.at("model").at("parameters");
  return option;
}

// The emitted job is planned again, which must come to the same bytes, hours and parameters.
api::TrainingJob ExpectSamePlanFromFile(const std::string& arguments) {
  SCOPED_TRACE(arguments);
  const std::string text = Output(arguments + " --emit trainingjob");
  const std::string path = testing::TempDir() + "/plan-emit-" + std::to_string(::getpid()) + ".yaml";
  std::ofstream(path) << text;
  EXPECT_EQ(ChosenIn(arguments), ChosenIn("--job " + path));
  std::filesystem::remove(path);
  return JobIn(text);
}

std::string Source(const std::string& path) { return TRAINYARD_SOURCE_DIR + path; }

TEST(PlanEmit, AConfigIsEmittedAsItsArchitectureAndPlannedTheSame) {
  const std::string config = "--config " + Source("/docs/examples/llama-135m") + " --steps 1000 --product ";
  const api::TrainingJob job = ExpectSamePlanFromFile(config + "RTX-4090 --sequence 2048");
  ASSERT_TRUE(job.spec.model.architecture);
  const api::Architecture& a = *job.spec.model.architecture;
  EXPECT_EQ(a.layers, 30);
  EXPECT_EQ(a.hidden_size, 576);
  EXPECT_EQ(a.attention_heads, 9);
  EXPECT_EQ(a.kv_heads, 3);
  EXPECT_EQ(a.ffn_size, 1536);
  EXPECT_EQ(a.vocab_size, 49152);
  EXPECT_EQ(a.max_positions, 2048);
  EXPECT_TRUE(a.tied_embeddings);
  EXPECT_EQ(job.spec.model.parameters, "");
  EXPECT_EQ(job.spec.training.steps, 1000);
  // Sequences longer than the file's positions, which validation would refuse.
  EXPECT_EQ(ExpectSamePlanFromFile(config + "L4 --count 4 --sequence 4096").spec.model.architecture->max_positions,
            4096);
  ExpectSamePlanFromFile(config + "H100-SXM --count 8 --precision FP32 --batch 64 --strategy ZeRO1");
}

TEST(PlanEmit, AShapeThatNoArchitectureSaysIsRefused) {
  const std::string corpus =
      " --product H100-SXM --emit trainingjob --config " + Source("/tests/fuzz/corpus/config_json/");
  EXPECT_EQ(
      Output(corpus + "mixtral.json", kExitBadInput),
      "trainyard plan: --emit: spec.model.architecture cannot say its experts (MixtralForCausalLM (config.json)), "
      "so the operator would size another model; emit another tool's file, or plan with --model 46.70B, which is "
      "taken as a dense Llama\n");
  EXPECT_THAT(Output(corpus + "gpt2.json --sequence 1024"), HasSubstr("family: GPT2"));
  EXPECT_THAT(Output(corpus + "gpt2.json --sequence 2048", kExitBadInput), HasSubstr("cannot say all of its sizes ("))
      << "its positions are weights";
  EXPECT_THAT(Output(corpus + "qwen2.json"), HasSubstr("family: Qwen2"));
}

// A file of some family with the fields of `config`, in a directory of its own.
std::string ConfigFile(const std::string& name, const std::string& config) {
  const std::string path = testing::TempDir() + "/plan-emit-" + std::to_string(::getpid()) + "-" + name + ".json";
  std::ofstream(path) << config;
  return path;
}

TEST(PlanEmit, AModelToStartFromBecomesAJobOfTheBundledTrainer) {
  const std::string qwen3 = ConfigFile("qwen3", R"({"architectures": ["Qwen3ForCausalLM"], "head_dim": 128,
      "hidden_size": 1024, "intermediate_size": 3072, "num_attention_heads": 16, "num_hidden_layers": 28,
      "num_key_value_heads": 8, "vocab_size": 151936, "max_position_embeddings": 40960,
      "tie_word_embeddings": true})");
  const std::string arguments = "--config " + qwen3 + " --product RTX-4090 --steps 1000 ";
  const api::TrainingJob job = ExpectSamePlanFromFile(arguments + "--pretrained models:qwen3-0.6b");
  EXPECT_TRUE(job.spec.UsesBundledTrainer());
  ASSERT_TRUE(job.spec.model.pretrained);
  EXPECT_EQ(job.spec.model.pretrained->volume, "models");
  EXPECT_EQ(job.spec.model.pretrained->path, "qwen3-0.6b");
  ASSERT_TRUE(job.spec.model.architecture);
  EXPECT_EQ(job.spec.model.architecture->family, api::Family::kQwen3);
  EXPECT_EQ(job.spec.model.architecture->head_size, 128);
  EXPECT_EQ(job.spec.model.architecture->max_positions, 40960);
  EXPECT_EQ(job.spec.volumes.size(), 3u);
  EXPECT_EQ(ChosenIn(arguments + "--pretrained models:qwen3-0.6b").at("parameters"), 596'049'920);
  EXPECT_THAT(Output(arguments + "--sequence 65536 --pretrained models:q --emit trainingjob", kExitBadInput),
              HasSubstr("--sequence 65536 is more than the 40960 positions that config.json says"));
  EXPECT_THAT(Output(arguments + "--pretrained models", kExitBadInput), HasSubstr("--pretrained"));
  EXPECT_THAT(Output("--model 7B --pretrained models:x", kExitBadInput), HasSubstr("--pretrained needs --config"));
  const std::string mixtral = Source("/tests/fuzz/corpus/config_json/mixtral.json");
  EXPECT_THAT(Output("--config " + mixtral + " --pretrained models:x", kExitBadInput),
              HasSubstr("the bundled trainer does not train MixtralForCausalLM"));
  std::filesystem::remove(qwen3);
}

TEST(PlanEmit, FlagsWinOverTheFileInWhatIsEmittedToo) {
  const std::string job = "--job " + Source("/docs/examples/own-program.yaml") + " --product H100-SXM --count 8 ";
  const api::TrainingJob all = ExpectSamePlanFromFile(
      job +
      "--steps 250 --sequence 2048 --batch 64 --micro-batch 2 --strategy ZeRO2 --precision FP32 --goal Fastest "
      "--max-hours 900");
  EXPECT_EQ(all.spec.training.steps, 250);
  EXPECT_EQ(all.spec.training.sequence_length, 2048);
  EXPECT_EQ(all.spec.training.global_batch_size, 64);
  EXPECT_EQ(all.spec.training.micro_batch_size, 2);
  EXPECT_EQ(all.spec.training.precision, api::Precision::kFp32);
  EXPECT_EQ(all.spec.parallelism.strategy, api::Strategy::kZero2);
  EXPECT_EQ(all.spec.gpus.goal, api::Goal::kFastest);
  EXPECT_EQ(all.spec.budget.max_hours, 900);
  const std::string tokens = job + "--sequence 2048 --batch 64 --tokens ";
  EXPECT_EQ(ExpectSamePlanFromFile(tokens + "131072000").spec.training.steps, 1000);
  // Without either the file's steps stay, of the batch that the flag says.
  EXPECT_EQ(ExpectSamePlanFromFile(job + "--batch 64").spec.training.steps, 1000);
}

TEST(PlanEmit, TheOptimizerIsSaidWhereAJobCanSayIt) {
  const std::string model = "--config " + Source("/docs/examples/llama-135m") + " --product L4 --steps 1000 ";
  const api::TrainingJob sgd = ExpectSamePlanFromFile(model + "--optimizer SGD --momentum 0.9");
  EXPECT_EQ(sgd.spec.training.optimizer.name, api::OptimizerKind::kSgd);
  EXPECT_EQ(sgd.spec.training.optimizer.momentum, 0.9);
  ExpectSamePlanFromFile(model + "--optimizer SGD");
  // A flag wins over the file, and takes settings of the other optimizer with it.
  const std::string job = "--job " + Source("/docs/examples/own-program.yaml") + " --product H100-SXM --count 8 ";
  EXPECT_EQ(ExpectSamePlanFromFile(job + "--optimizer SGD").spec.training.optimizer.name, api::OptimizerKind::kSgd);
  EXPECT_EQ(ExpectSamePlanFromFile(model + "--optimizer AdamW8bit").spec.training.optimizer.name,
            api::OptimizerKind::kAdamW8bit);
  EXPECT_EQ(ExpectSamePlanFromFile(job + "--optimizer Adafactor").spec.training.optimizer.name,
            api::OptimizerKind::kAdafactor);
}

TEST(PlanEmit, AnAdapterIsSaidBesideTheModelItIsTrainedOn) {
  const std::string model =
      "--config " + Source("/docs/examples/llama-135m") + " --product L4 --steps 1000 --sequence 1024 ";
  const std::string on = model + "--pretrained models:llama ";
  const api::TrainingJob qlora = ExpectSamePlanFromFile(on + "--adapter QLoRA --adapter-rank 8");
  ASSERT_TRUE(qlora.spec.model.adapter);
  EXPECT_EQ(qlora.spec.model.adapter->rank, 8);
  EXPECT_EQ(qlora.spec.model.adapter->quantize_base, api::QuantizeBase::kNf4);
  const api::TrainingJob lora = ExpectSamePlanFromFile(on + "--adapter LoRA");
  ASSERT_TRUE(lora.spec.model.adapter);
  EXPECT_EQ(lora.spec.model.adapter->quantize_base, api::QuantizeBase::kNone);
  EXPECT_FALSE(ExpectSamePlanFromFile(on).spec.model.adapter);
  EXPECT_THAT(Output(model + "--adapter LoRA --emit trainingjob", kExitBadInput),
              HasSubstr("--emit: --adapter LoRA needs --config DIR and --pretrained VOLUME:PATH"));
}

TEST(PlanEmit, OffloadIsSaidToo) {
  const std::string model = "--model 7B --product H100-SXM --count 1 --steps 1000 ";
  EXPECT_EQ(ExpectSamePlanFromFile(model + "--offload CPU").spec.parallelism.offload, api::OffloadTo::kCpu);
  EXPECT_EQ(ExpectSamePlanFromFile(model + "--offload NVMe").spec.parallelism.offload, api::OffloadTo::kNvme);
  const std::string job = "--job " + Source("/docs/examples/own-program.yaml") + " --product H100-SXM --count 8 ";
  EXPECT_EQ(ExpectSamePlanFromFile(job + "--offload CPU").spec.parallelism.offload, api::OffloadTo::kCpu);
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

TEST(PlanEmit, ATrainingJobSaysHsdpAndWhatItRecomputes) {
  const std::string text = Output("--model 13B --product L40S --count 16 --emit trainingjob");
  EXPECT_THAT(text, HasSubstr("strategy: HSDP"));
  EXPECT_THAT(text, HasSubstr("activationCheckpointing: "));
}

TEST(PlanEmit, WhatCannotBeSaidIsAnError) {
  EXPECT_THAT(Output("--model 34B --product RTX-4090 --count 1-8 --emit torchrun", kExitBadInput),
              HasSubstr("--emit: nothing is chosen, so there is nothing to emit"));
  EXPECT_THAT(Output("--model 7B --product RTX-4090 --adapter QLoRA --emit trainingjob", kExitBadInput),
              HasSubstr("--emit: --adapter QLoRA needs --config DIR and --pretrained VOLUME:PATH"));
  EXPECT_THAT(Output("--model 1B --product H100-SXM --no-flash-attention --emit trainingjob", kExitBadInput),
              HasSubstr("--emit: a TrainingJob has no field for --no-flash-attention"));
  EXPECT_THAT(
      Output("--model 7B --product H100-SXM --single-gpu-hours 100 --max-hours 90 --emit trainingjob", kExitBadInput),
      HasSubstr("--emit: a TrainingJob has no field for --single-gpu-hours"));
  EXPECT_THAT(Output("--job " + Source("/docs/examples/own-program.yaml") +
                         " --product H100-SXM --count 8 --steps "
                         "2000000000 --emit trainingjob",
                     kExitBadInput),
              HasSubstr("--emit: the operator would refuse the TrainingJob: spec.training.steps: "));
  EXPECT_THAT(Output("--model 7B --product H100-SXM --count 8 --tensor-parallel 2 --emit deepspeed", kExitBadInput),
              HasSubstr("--emit: only torchrun starts a program that splits matrices or layers by itself"));
}

}  // namespace
}  // namespace trainyard::cli
