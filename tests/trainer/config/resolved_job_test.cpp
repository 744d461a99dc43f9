// What the operator resolves of optimizers and schedules is what the trainer reads, field by field, and jobs that use
// neither SGD nor a new schedule read as they did before there were any.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "operator/api/defaults.h"
#include "operator/api/json.h"
#include "operator/api/validation.h"
#include "operator/lifecycle/resolved_job.h"
#include "trainer/config/config.h"

namespace trainyard::config {
namespace {

using nlohmann::json;

// The resolved job of a small manifest with this `training`.
json Resolve(const json& training) {
  const json manifest = {{"apiVersion", "trainyard.dev/v1alpha1"},
                         {"kind", "TrainingJob"},
                         {"metadata", {{"name", "tiny"}, {"uid", "u-1"}}},
                         {"spec",
                          {{"model", {{"architecture", {{"layers", 2}, {"hiddenSize", 64}, {"attentionHeads", 4}}}}},
                           {"data", {{"train", {{{"volume", "corpus"}, {"path", "train.txt"}}}}}},
                           {"training", training},
                           {"volumes", {{{"name", "corpus"}, {"persistentVolumeClaim", {{"claimName", "corpus"}}}}}}}}};
  auto job = api::JobFromJson(manifest);
  EXPECT_TRUE(job) << job.error().message;
  if (!job) return {};
  api::ApplyDefaults(*job);
  EXPECT_THAT(api::Validate(*job), testing::IsEmpty()) << training;
  api::PlanStatus plan;
  plan.strategy = "FSDP";
  plan.micro_batch_size = 1;
  return lifecycle::ResolvedJob(*job, plan);
}

Training Read(const json& training) {
  const auto job = Parse(Resolve(training).dump());
  EXPECT_TRUE(job.has_value()) << job.error().message;
  return job ? job->training : Training();
}

std::vector<std::string> KeysOf(const json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

TEST(ResolvedJob, SgdArrives) {
  const Optimizer o =
      Read({{"optimizer",
             {{"name", "SGD"}, {"learningRate", 0.5}, {"weightDecay", 0.01}, {"momentum", 0.875}, {"nesterov", true}}}})
          .optimizer;
  EXPECT_EQ(o.kind, OptimizerKind::kSgd);
  EXPECT_EQ(o.learning_rate, 0.5);
  EXPECT_EQ(o.weight_decay, 0.01);
  EXPECT_EQ(o.momentum, 0.875);
  EXPECT_TRUE(o.nesterov);
}

TEST(ResolvedJob, OptimizersInFewBytesArrive) {
  const Optimizer eight = Read({{"optimizer", {{"name", "AdamW8bit"}, {"betas", {0.5, 0.75}}}}}).optimizer;
  EXPECT_EQ(eight.kind, OptimizerKind::kAdamW8bit);
  EXPECT_EQ(eight.beta1, 0.5);
  const Optimizer factored = Read({{"optimizer", {{"name", "Adafactor"}, {"weightDecay", 0.25}}}}).optimizer;
  EXPECT_EQ(factored.kind, OptimizerKind::kAdafactor);
  EXPECT_EQ(factored.weight_decay, 0.25);
}

TEST(ResolvedJob, AdamWArrives) {
  const Optimizer o =
      Read({{"optimizer", {{"betas", {0.5, 0.75}}, {"epsilon", 0.001}, {"weightDecay", 0.25}}}}).optimizer;
  EXPECT_EQ(o.kind, OptimizerKind::kAdamW);
  EXPECT_EQ(o.beta1, 0.5);
  EXPECT_EQ(o.beta2, 0.75);
  EXPECT_EQ(o.epsilon, 0.001);
  EXPECT_EQ(o.weight_decay, 0.25);
}

TEST(ResolvedJob, EverySchedulesFieldsArrive) {
  const std::pair<const char*, ScheduleType> types[] = {
      {"Cosine", ScheduleType::kCosine}, {"Linear", ScheduleType::kLinear}, {"Constant", ScheduleType::kConstant}};
  for (const auto& [name, type] : types) {
    const Schedule s =
        Read({{"schedule", {{"type", name}, {"warmupSteps", 7}, {"minLearningRateRatio", 0.5}}}}).schedule;
    EXPECT_EQ(s.type, type);
    EXPECT_EQ(s.warmup_steps, 7);
    EXPECT_EQ(s.min_learning_rate_ratio, 0.5);
  }
  const std::pair<const char*, DecayShape> shapes[] = {
      {"Linear", DecayShape::kLinear}, {"Cosine", DecayShape::kCosine}, {"Sqrt", DecayShape::kSqrt}};
  for (const auto& [name, shape] : shapes) {
    const Schedule s =
        Read({{"steps", 500}, {"schedule", {{"type", "WarmupStableDecay"}, {"warmupSteps", 7}, {"decayShape", name}}}})
            .schedule;
    EXPECT_EQ(s.type, ScheduleType::kWarmupStableDecay);
    EXPECT_EQ(s.decay_steps, 50) << "a tenth of the steps, which the operator works out";
    EXPECT_EQ(s.decay_shape, shape);
  }
}

// The resolved job of a whole spec, as the operator writes it, read by the trainer.
Job ReadWhole(const json& change, const std::string& offload = "None") {
  json manifest = {{"apiVersion", "trainyard.dev/v1alpha1"},
                   {"kind", "TrainingJob"},
                   {"metadata", {{"name", "tiny"}, {"uid", "u-1"}}},
                   {"spec",
                    {{"model", {{"architecture", {{"layers", 2}, {"hiddenSize", 64}, {"attentionHeads", 4}}}}},
                     {"data", {{"train", {{{"volume", "corpus"}, {"path", "train.txt"}}}}}},
                     {"volumes", {{{"name", "corpus"}, {"persistentVolumeClaim", {{"claimName", "corpus"}}}}}}}}};
  manifest["spec"].merge_patch(change);
  auto job = api::JobFromJson(manifest);
  EXPECT_TRUE(job) << job.error().message;
  if (!job) return {};
  api::ApplyDefaults(*job);
  EXPECT_THAT(api::Validate(*job), testing::IsEmpty()) << change;
  api::PlanStatus plan;
  plan.strategy = "HSDP";
  plan.micro_batch_size = 1;
  plan.activation_checkpointing = "Selective";
  plan.gradient_reduction = "LastMicroBatch";
  plan.offload = offload;
  const auto read = Parse(lifecycle::ResolvedJob(*job, plan).dump());
  EXPECT_TRUE(read.has_value()) << read.error().message;
  return read ? *read : Job();
}

TEST(ResolvedJob, WhatTheEngineIsAskedForArrives) {
  const Job job = ReadWhole({{"training", {{"onNonFiniteLoss", "SkipStep"}, {"determinism", "WorldSize"}}}});
  EXPECT_EQ(job.parallelism.strategy, Strategy::kHsdp);
  EXPECT_EQ(job.parallelism.gradient_reduction, GradientReduction::kLastMicroBatch);
  EXPECT_EQ(job.training.activation_checkpointing, ActivationCheckpointing::kSelective);
  EXPECT_EQ(job.training.on_non_finite_loss, NonFinite::kSkipStep);
  EXPECT_EQ(job.training.determinism, Determinism::kWorldSize);
}

TEST(ResolvedJob, OffloadArrives) {
  EXPECT_EQ(ReadWhole(json::object()).parallelism.offload, Offload::kNone);
  EXPECT_EQ(ReadWhole({{"parallelism", {{"offload", "CPU"}}}}, "CPU").parallelism.offload, Offload::kCpu);
  const Parallelism p =
      ReadWhole({{"parallelism", {{"offload", "NVMe"}, {"offloadVolume", "corpus"}}}}, "NVMe").parallelism;
  EXPECT_EQ(p.offload, Offload::kNvme);
  EXPECT_EQ(p.offload_volume, "corpus");
}

TEST(ResolvedJob, MixturesEventsAndTimelinesArrive) {
  const Job job = ReadWhole(
      {{"data",
        {{"documentSeparator", 10},
         {"train", {{{"volume", "corpus"}, {"path", "a"}, {"weight", 3}}, {{"volume", "corpus"}, {"path", "b"}}}}}},
       {"observe",
        {{"tensorBoard", {{"volume", "corpus"}, {"path", "events"}}},
         {"profile", {{"fromStep", 7}, {"steps", 2}, {"volume", "corpus"}, {"path", "traces"}}}}}});
  EXPECT_EQ(job.data.Weights(), (std::vector<double>{3, 1}));
  EXPECT_EQ(job.data.document_separator, 10);
  ASSERT_TRUE(job.observe.tensorboard);
  EXPECT_EQ(job.observe.tensorboard->path, "events");
  ASSERT_TRUE(job.training.profile);
  EXPECT_EQ(job.training.profile->from_step, 7);
  EXPECT_EQ(job.training.profile->steps, 2);
  ASSERT_TRUE(job.training.profile->directory);
  EXPECT_EQ(job.training.profile->directory->path, "traces");
}

TEST(ResolvedJob, Gpt2Arrives) {
  const Job job = ReadWhole({{"model", {{"architecture", {{"family", "GPT2"}, {"tiedEmbeddings", true}}}}}});
  EXPECT_EQ(job.model.family, Family::kGpt2);
  EXPECT_EQ(job.model.ffn_size, 256) << "four times the width";
  EXPECT_EQ(job.model.kv_heads, 4);
}

TEST(ResolvedJob, ASampleArrives) {
  const json change = {
      {"data", {{"validation", {{{"volume", "corpus"}, {"path", "valid.txt"}}}}}},
      {"training", {{"evaluation", {{"sample", {{"prompt", "Once"}, {"tokens", 9}, {"temperature", 0.5}}}}}}}};
  const Job job = ReadWhole(change);
  ASSERT_TRUE(job.training.sample);
  EXPECT_EQ(job.training.sample->prompt, "Once");
  EXPECT_EQ(job.training.sample->tokens, 9);
  EXPECT_EQ(job.training.sample->temperature, 0.5);
}

TEST(ResolvedJob, AModelToStartFromAndAPlaceForTheResultArrive) {
  const json change = {
      {"model",
       {{"architecture", {{"family", "Qwen3"}, {"headSize", 32}}},
        {"pretrained", {{"volume", "corpus"}, {"path", "q"}}},
        {"adapter", {{"rank", 8}, {"alpha", 4}, {"targets", {"q_proj"}}, {"quantizeBase", "NF4"}}}}},
      {"checkpoint", {{"volume", "corpus"}, {"exportOnSuccess", {{"volume", "corpus"}, {"path", "out"}}}}}};
  const Job job = ReadWhole(change);
  EXPECT_EQ(job.model.family, Family::kQwen3);
  EXPECT_EQ(job.model.head_size, 32);
  ASSERT_TRUE(job.model.pretrained);
  EXPECT_EQ(job.model.pretrained->Resolve("/v"), "/v/corpus/q");
  ASSERT_TRUE(job.model.adapter);
  EXPECT_EQ(job.model.adapter->rank, 8);
  EXPECT_EQ(job.model.adapter->alpha, 4);
  EXPECT_EQ(job.model.adapter->targets, std::vector<std::string>{"q_proj"});
  EXPECT_TRUE(job.model.adapter->nf4);
  ASSERT_TRUE(job.checkpoint && job.checkpoint->export_on_success);
  EXPECT_EQ(job.checkpoint->export_on_success->Resolve("/v"), "/v/corpus/out");
}

TEST(ResolvedJob, HasNoNewKeysForWhatTrainersOfBeforeCouldDo) {
  for (const char* type : {"Cosine", "Constant"}) {
    const json training = Resolve({{"schedule", {{"type", type}}}})["training"];
    EXPECT_THAT(KeysOf(training["optimizer"]),
                testing::UnorderedElementsAre("name", "learningRate", "betas", "epsilon", "weightDecay"));
    EXPECT_THAT(KeysOf(training["schedule"]),
                testing::UnorderedElementsAre("type", "warmupSteps", "minLearningRateRatio"));
    for (const char* key : {"activationCheckpointing", "onNonFiniteLoss", "determinism"}) {
      EXPECT_FALSE(training.contains(key)) << key;
    }
  }
}

}  // namespace
}  // namespace trainyard::config
