#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainer/config/config.h"

namespace trainyard::config {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

json Valid() {
  return json::parse(R"({"contract": 1,
    "job": {"namespace": "default", "name": "tiny", "uid": "u-1"},
    "model": {"family": "Llama", "layers": 4, "hiddenSize": 128, "attentionHeads": 8, "kvHeads": 4, "ffnSize": 352,
              "vocabSize": 256, "tiedEmbeddings": true, "maxPositions": 256, "ropeTheta": 10000.0, "normEpsilon": 1e-5},
    "data": {"format": "Text", "train": [{"volume": "corpus", "path": "train.txt"}],
             "validation": [{"volume": "corpus", "path": "valid.txt"}]},
    "training": {"device": "CPU", "sequenceLength": 128, "globalBatchSize": 16, "microBatchSize": 4, "steps": 400,
                 "precision": "FP32",
                 "optimizer": {"name": "AdamW", "learningRate": 0.001, "betas": [0.9, 0.95], "epsilon": 1e-8,
                               "weightDecay": 0.1},
                 "schedule": {"type": "Cosine", "warmupSteps": 20, "minLearningRateRatio": 0.1},
                 "gradientClipNorm": 1, "evaluation": {"everySteps": 50, "batches": 4}, "seed": 1234},
    "parallelism": {"strategy": "FSDP"},
    "checkpoint": {"volume": "checkpoints", "path": "tiny", "everySteps": 100, "keepLast": 3, "resume": "Latest",
                   "resumeStep": 0}})");
}

std::string ErrorOf(const json& document) {
  auto job = Parse(document.dump());
  return job ? "" : job.error().message;
}

// The error after `value` is put at `pointer`.
std::string ErrorWith(const char* pointer, const json& value) {
  json document = Valid();
  document[json::json_pointer(pointer)] = value;
  return ErrorOf(document);
}

TEST(ParseJob, DeterminismIsOptional) {
  auto job = Parse(Valid().dump());
  ASSERT_TRUE(job.has_value()) << job.error().message;
  EXPECT_EQ(job->training.determinism, Determinism::kNone);
  EXPECT_EQ(job->training.threads, 0);
  json document = Valid();
  document["training"]["determinism"] = "WorldSize";
  document["training"]["threads"] = 3;
  job = Parse(document.dump());
  ASSERT_TRUE(job.has_value()) << job.error().message;
  EXPECT_EQ(job->training.determinism, Determinism::kWorldSize);
  EXPECT_EQ(job->training.threads, 3);
  EXPECT_EQ(ErrorWith("/training/determinism", "Always"),
            "training.determinism: \"Always\" is unknown; use one of None, Layout, WorldSize");
  EXPECT_EQ(ErrorWith("/training/determinism", 3), "training.determinism: 3 is not a string");
  document["training"]["globalBatchSize"] = (1 << 20) + 1;
  document["training"]["microBatchSize"] = 1;
  EXPECT_EQ(ErrorOf(document),
            "training.microBatchSize: 1 cuts training.globalBatchSize 1048577 into more than 1048576, too many for "
            "training.determinism WorldSize");
  document = Valid();
  document["training"]["optimizer"] = {{"name", "Adafactor"}, {"learningRate", 0.01}, {"weightDecay", 0.1}};
  EXPECT_EQ(ErrorOf(document), "");
  document["training"]["determinism"] = "WorldSize";
  document["training"]["threads"] = 3;
  EXPECT_EQ(
      ErrorOf(document),
      "training.determinism: WorldSize cannot be had with training.optimizer.name Adafactor, whose statistics are "
      "floating-point sums over ranks; use AdamW or AdamW8bit, or determinism Layout");
}

TEST(ParseJob, OnNonFiniteLossIsStopUnlessSaid) {
  EXPECT_EQ(Parse(Valid().dump())->training.on_non_finite_loss, NonFinite::kStop);
  json document = Valid();
  document["training"]["onNonFiniteLoss"] = "SkipStep";
  EXPECT_EQ(Parse(document.dump())->training.on_non_finite_loss, NonFinite::kSkipStep);
  EXPECT_THAT(ErrorWith("/training/onNonFiniteLoss", "Ignore"),
              HasSubstr("training.onNonFiniteLoss: \"Ignore\" is unknown; use one of Stop, SkipStep"));
}

TEST(ParseJob, ReadsEverything) {
  const auto job = Parse(Valid().dump());
  ASSERT_TRUE(job.has_value()) << job.error().message;
  EXPECT_EQ(job->identity.namespace_name, "default");
  EXPECT_EQ(job->identity.name, "tiny");
  EXPECT_EQ(job->identity.uid, "u-1");
  EXPECT_EQ(job->model.family, Family::kLlama);
  EXPECT_EQ(job->model.layers, 4);
  EXPECT_EQ(job->model.hidden_size, 128);
  EXPECT_EQ(job->model.attention_heads, 8);
  EXPECT_EQ(job->model.kv_heads, 4);
  EXPECT_EQ(job->model.ffn_size, 352);
  EXPECT_EQ(job->model.vocab_size, 256);
  EXPECT_TRUE(job->model.tied_embeddings);
  EXPECT_EQ(job->model.max_positions, 256);
  EXPECT_EQ(job->model.rope_theta, 10000.0);
  EXPECT_EQ(job->model.norm_epsilon, 1e-5);
  EXPECT_EQ(job->data.format, DataFormat::kText);
  ASSERT_EQ(job->data.train.size(), 1U);
  EXPECT_EQ(job->data.train[0].Resolve("/volumes"), "/volumes/corpus/train.txt");
  EXPECT_EQ(job->data.validation[0].path, "valid.txt");
  EXPECT_EQ(job->training.device, DeviceType::kCpu);
  EXPECT_EQ(DeviceName(job->training.device), "CPU");
  EXPECT_EQ(job->training.sequence_length, 128);
  EXPECT_EQ(job->training.global_batch_size, 16);
  EXPECT_EQ(job->training.micro_batch_size, 4);
  EXPECT_EQ(job->training.steps, 400);
  EXPECT_EQ(job->training.precision, Precision::kFp32);
  EXPECT_EQ(job->training.optimizer.learning_rate, 0.001);
  EXPECT_EQ(job->training.optimizer.beta1, 0.9);
  EXPECT_EQ(job->training.optimizer.beta2, 0.95);
  EXPECT_EQ(job->training.optimizer.epsilon, 1e-8);
  EXPECT_EQ(job->training.optimizer.weight_decay, 0.1);
  EXPECT_EQ(job->training.schedule.type, ScheduleType::kCosine);
  EXPECT_EQ(job->training.schedule.warmup_steps, 20);
  EXPECT_EQ(job->training.schedule.min_learning_rate_ratio, 0.1);
  EXPECT_EQ(job->training.gradient_clip_norm, 1);
  EXPECT_EQ(job->training.evaluation_every_steps, 50);
  EXPECT_EQ(job->training.evaluation_batches, 4);
  EXPECT_EQ(job->training.seed, 1234U);
  EXPECT_EQ(job->parallelism.strategy, Strategy::kFsdp);
  EXPECT_EQ(job->parallelism.stage(), 3);
  EXPECT_EQ(job->parallelism.gradient_reduction, GradientReduction::kEachMicroBatch);
  ASSERT_TRUE(job->checkpoint.has_value());
  EXPECT_EQ(job->checkpoint->directory.Resolve("/v"), "/v/checkpoints/tiny");
  EXPECT_EQ(job->checkpoint->every_steps, 100);
  EXPECT_EQ(job->checkpoint->keep_last, 3);
  EXPECT_EQ(job->checkpoint->resume, Resume::kLatest);
  EXPECT_EQ(job->checkpoint->every_seconds, 0);
  EXPECT_EQ(job->checkpoint->mean_seconds_between_failures, 0);
  EXPECT_EQ(job->checkpoint->keep_every_steps, 0);
  EXPECT_FALSE(job->checkpoint->verify_after_save);
  EXPECT_EQ(job->checkpoint->verify_every_hours, 0);
  EXPECT_FALSE(job->checkpoint->resume_from);
}

TEST(ParseJob, ReadsHowCheckpointsAreManaged) {
  json document = Valid();
  document["checkpoint"].update({{"everySteps", 0},
                                 {"everySeconds", 900.5},
                                 {"keepEverySteps", 5000},
                                 {"verifyAfterSave", true},
                                 {"verifyEveryHours", 24},
                                 {"resumeFrom", {{"volume", "other"}, {"path", "a/b"}, {"step", 70}}}});
  auto job = Parse(document.dump());
  ASSERT_TRUE(job.has_value()) << job.error().message;
  EXPECT_EQ(job->checkpoint->every_seconds, 900.5);
  EXPECT_EQ(job->checkpoint->keep_every_steps, 5000);
  EXPECT_TRUE(job->checkpoint->verify_after_save);
  EXPECT_EQ(job->checkpoint->verify_every_hours, 24);
  EXPECT_EQ(job->checkpoint->resume_from->directory.Resolve("/v"), "/v/other/a/b");
  EXPECT_EQ(job->checkpoint->resume_from->step, 70);
  EXPECT_FALSE(job->checkpoint->resume_from->weights_only);
  document["checkpoint"]["resumeFrom"]["weightsOnly"] = true;
  EXPECT_TRUE(Parse(document.dump())->checkpoint->resume_from->weights_only);
  document["checkpoint"].erase("everySeconds");
  document["checkpoint"]["meanSecondsBetweenFailures"] = 86400;
  EXPECT_EQ(Parse(document.dump())->checkpoint->mean_seconds_between_failures, 86400);
  EXPECT_LT(Parse(document.dump())->checkpoint->cost_seconds, 0) << "not known";
  document["checkpoint"].update({{"costSeconds", 0}, {"saveSeconds", 2.5}});
  EXPECT_EQ(Parse(document.dump())->checkpoint->cost_seconds, 0);
  EXPECT_EQ(Parse(document.dump())->checkpoint->save_seconds, 2.5);
  document["checkpoint"]["everySeconds"] = 1;
  EXPECT_THAT(ErrorOf(document), HasSubstr("checkpoint: give one of everySteps, everySeconds"));
  EXPECT_THAT(ErrorWith("/checkpoint/everySeconds", 0), HasSubstr("checkpoint.everySeconds"));
  EXPECT_THAT(ErrorWith("/checkpoint/verifyAfterSave", 1), HasSubstr("checkpoint.verifyAfterSave: 1 is not true"));
  EXPECT_THAT(ErrorWith("/checkpoint/resumeFrom", {{"volume", "checkpoints"}, {"path", "tiny"}}),
              HasSubstr("checkpoint.resumeFrom: is the job's own directory"));
  EXPECT_THAT(ErrorWith("/checkpoint/resumeFrom", {{"volume", "other"}, {"path", "../x"}}),
              HasSubstr("checkpoint.resumeFrom.path: \"../x\" leaves the volume"));
}

TEST(ParseJob, OptionalPartsMayBeAbsent) {
  json document = Valid();
  document.erase("checkpoint");
  document["data"].erase("validation");
  document["training"].erase("evaluation");
  document["model"].erase("ropeTheta");
  document["training"]["seed"] = std::numeric_limits<uint64_t>::max();
  const auto job = Parse(document.dump());
  ASSERT_TRUE(job.has_value()) << job.error().message;
  EXPECT_FALSE(job->checkpoint.has_value());
  EXPECT_TRUE(job->data.validation.empty());
  EXPECT_EQ(job->training.evaluation_every_steps, 0);
  EXPECT_EQ(job->training.seed, std::numeric_limits<uint64_t>::max());
}

json ValidSgd() {
  json document = Valid();
  document["training"]["optimizer"] =
      json::parse(R"({"name": "SGD", "learningRate": 0.1, "weightDecay": 0.0001, "momentum": 0.9, "nesterov": true})");
  document["training"]["schedule"] = json::parse(
      R"({"type": "WarmupStableDecay", "warmupSteps": 20, "minLearningRateRatio": 0, "decaySteps": 80,
          "decayShape": "Sqrt"})");
  return document;
}

TEST(ParseJob, ReadsEveryOptimizerAndSchedule) {
  const auto job = Parse(ValidSgd().dump());
  ASSERT_TRUE(job.has_value()) << job.error().message;
  EXPECT_EQ(job->training.optimizer.kind, OptimizerKind::kSgd);
  EXPECT_EQ(job->training.optimizer.learning_rate, 0.1);
  EXPECT_EQ(job->training.optimizer.weight_decay, 0.0001);
  EXPECT_EQ(job->training.optimizer.momentum, 0.9);
  EXPECT_TRUE(job->training.optimizer.nesterov);
  EXPECT_EQ(job->training.schedule.type, ScheduleType::kWarmupStableDecay);
  EXPECT_EQ(job->training.schedule.decay_steps, 80);
  EXPECT_EQ(job->training.schedule.decay_shape, DecayShape::kSqrt);
  for (const auto& [name, type] : {std::pair{"Cosine", ScheduleType::kCosine},
                                   {"Linear", ScheduleType::kLinear},
                                   {"Constant", ScheduleType::kConstant}}) {
    json document = Valid();
    document["training"]["schedule"]["type"] = name;
    EXPECT_EQ(Parse(document.dump()).value().training.schedule.type, type);
  }
}

TEST(ParseJob, EachOptimizerAndScheduleHasItsOwnKeys) {
  const auto error = [](json document, const char* pointer, const json& value) {
    document[json::json_pointer(pointer)] = value;
    return ErrorOf(document);
  };
  EXPECT_THAT(error(ValidSgd(), "/training/optimizer/betas", {0.9, 0.95}),
              StartsWith("training.optimizer.betas: unknown key; "));
  EXPECT_THAT(error(Valid(), "/training/optimizer/momentum", 0.9),
              StartsWith("training.optimizer.momentum: unknown key; "));
  EXPECT_THAT(error(Valid(), "/training/schedule/decaySteps", 9),
              StartsWith("training.schedule.decaySteps: unknown key; "));
  EXPECT_EQ(error(Valid(), "/training/optimizer/name", "Lion"),
            "training.optimizer.name: \"Lion\" is unknown; use one of AdamW, AdamW8bit, Adafactor, SGD");
  EXPECT_EQ(error(ValidSgd(), "/training/optimizer/momentum", 1),
            "training.optimizer.momentum: 1 is out of range; use a number from 0 to below 1");
  EXPECT_EQ(error(ValidSgd(), "/training/optimizer/momentum", -0.5),
            "training.optimizer.momentum: -0.5 is out of range; use a number from 0 to below 1");
  EXPECT_EQ(error(ValidSgd(), "/training/optimizer/momentum", 0),
            "training.optimizer.nesterov: true needs training.optimizer.momentum above 0");
  EXPECT_EQ(error(ValidSgd(), "/training/schedule/decaySteps", 381),
            "training.schedule.decaySteps: 381 after warmupSteps 20 is more than training.steps 400");
  EXPECT_EQ(error(ValidSgd(), "/training/schedule/decaySteps", 380), "");
  EXPECT_THAT(error(ValidSgd(), "/training/schedule/decayShape", "Step"),
              HasSubstr("training.schedule.decayShape: \"Step\" is unknown; use one of Linear, Cosine, Sqrt"));
  json without = ValidSgd();
  without["training"]["optimizer"].erase("momentum");
  EXPECT_THAT(ErrorOf(without), HasSubstr("training.optimizer.momentum: missing"));
}

// Every key of the document in turn: absent, of a wrong type, and beside an unknown one. The error names its path.
void CheckEveryKey(const json& node, const std::string& pointer, const std::string& path, int* keys) {
  for (const auto& [key, value] : node.items()) {
    const std::string at = pointer + "/" + key;
    const std::string name = path.empty() ? key : path + "." + key;
    json wrong = Valid();
    wrong[json::json_pointer(at)] = value.is_boolean() ? json("yes") : json(true);
    EXPECT_THAT(ErrorOf(wrong), HasSubstr(name)) << "wrong type";
    const bool optional = name == "checkpoint" || name == "data.validation" || name == "training.evaluation" ||
                          name == "model.ropeTheta" || name == "model.normEpsilon" || name == "checkpoint.resumeStep";
    if (!optional) {
      json absent = Valid();
      absent[json::json_pointer(pointer)].erase(key);
      EXPECT_THAT(ErrorOf(absent), HasSubstr(name + ": missing"));
    }
    ++*keys;
    if (value.is_object()) {
      json unknown = Valid();
      unknown[json::json_pointer(at)]["colour"] = 1;
      EXPECT_THAT(ErrorOf(unknown), HasSubstr(name + ".colour: unknown key"));
      CheckEveryKey(value, at, name, keys);
    }
  }
}

TEST(ParseJob, NamesEveryKeyThatIsWrong) {
  int keys = 0;
  CheckEveryKey(Valid(), "", "", &keys);
  EXPECT_EQ(keys, 52);
  json document = Valid();
  document["modle"] = 1;
  EXPECT_THAT(ErrorOf(document), HasSubstr("modle: unknown key"));
}

TEST(ParseJob, NamesValuesOutOfRange) {
  EXPECT_THAT(ErrorWith("/training/steps", 0), HasSubstr("training.steps: 0 is out of range"));
  EXPECT_THAT(ErrorWith("/training/steps", -1), HasSubstr("training.steps: -1"));
  EXPECT_THAT(ErrorWith("/training/steps", 1.5), HasSubstr("training.steps: 1.5 is not a whole number"));
  EXPECT_THAT(ErrorWith("/training/steps", 18446744073709551615ULL), HasSubstr("training.steps: 1844"));
  EXPECT_THAT(ErrorWith("/training/seed", -1), HasSubstr("training.seed: -1"));
  EXPECT_THAT(ErrorWith("/training/optimizer/learningRate", 0), HasSubstr("learningRate: 0 is out of range"));
  EXPECT_THAT(ErrorWith("/training/optimizer/betas", {0.9, 1.0}), HasSubstr("optimizer.betas"));
  EXPECT_THAT(ErrorWith("/training/optimizer/betas", {0.9}), HasSubstr("optimizer.betas"));
  EXPECT_THAT(ErrorWith("/training/optimizer/betas", json::array()), HasSubstr("optimizer.betas"));
  EXPECT_THAT(ErrorWith("/training/device", "Auto"), HasSubstr("\"Auto\" is unknown; use one of CPU, CUDA"));
  EXPECT_THAT(ErrorWith("/parallelism/strategy", "ZeRO4"), HasSubstr("use one of DDP, ZeRO1, ZeRO2, FSDP, HSDP"));
  EXPECT_THAT(ErrorWith("/model/family", "BERT"),
              HasSubstr("model.family: \"BERT\" is unknown; use one of Llama, Mistral, Qwen2, Qwen3, GPT2"));
  EXPECT_THAT(ErrorWith("/training/activationCheckpointing", "Auto"), HasSubstr("use one of None, Selective, Full"));
  EXPECT_THAT(ErrorWith("/contract", 99), HasSubstr("contract: 99 is not 1"));
  EXPECT_THAT(ErrorWith("/data/train", json::array()), HasSubstr("data.train: is empty"));
  EXPECT_THAT(ErrorWith("/data/train/0/path", "../x"), HasSubstr("data.train[0].path: \"../x\" leaves the volume"));
  EXPECT_THAT(ErrorWith("/data/train/0/path", "/x"), HasSubstr("absolute"));
  EXPECT_THAT(ErrorWith("/data/train/0/volume", ".."), HasSubstr("data.train[0].volume"));
  EXPECT_THAT(ErrorWith("/data/train/0", 3), HasSubstr("data.train[0]: 3 is not an object"));
  EXPECT_EQ(ErrorWith("/data/train/0/path", "a..b/c"), "");
}

TEST(ParseJob, ActivationCheckpointingIsNoneUnlessGiven) {
  EXPECT_EQ(Parse(Valid().dump())->training.activation_checkpointing, ActivationCheckpointing::kNone);
  for (const auto& [name, mode] :
       {std::pair{"None", ActivationCheckpointing::kNone}, std::pair{"Selective", ActivationCheckpointing::kSelective},
        std::pair{"Full", ActivationCheckpointing::kFull}}) {
    json document = Valid();
    document["training"]["activationCheckpointing"] = name;
    EXPECT_EQ(Parse(document.dump())->training.activation_checkpointing, mode) << name;
  }
}

TEST(ParseJob, AGpt2HasNeitherGroupedQueriesNorRotaryPositions) {
  json document = Valid();
  document["model"]["family"] = "GPT2";
  EXPECT_THAT(ErrorOf(document), HasSubstr("model.ropeTheta: unknown key"));
  document["model"].erase("ropeTheta");
  EXPECT_THAT(ErrorOf(document), HasSubstr("model.kvHeads: 4 is not model.attentionHeads 8"));
  document["model"].erase("kvHeads");
  document["model"]["attentionHeads"] = 128;  // heads of one number
  const auto job = Parse(document.dump());
  ASSERT_TRUE(job.has_value()) << job.error().message;
  EXPECT_EQ(job->model.family, Family::kGpt2);
  EXPECT_EQ(job->model.kv_heads, 128);
}

TEST(ParseJob, AHeadSizeOfItsOwnNeedsPairsAndNoDivision) {
  json document = Valid();
  document["model"]["family"] = "Qwen3";
  document["model"]["headSize"] = 48;
  document["model"]["attentionHeads"] = 12;  // 128 is no multiple of it
  const auto job = Parse(document.dump());
  ASSERT_TRUE(job.has_value()) << job.error().message;
  EXPECT_EQ(job->model.family, Family::kQwen3);
  EXPECT_EQ(job->model.head_size, 48);
  document["model"]["headSize"] = 15;
  EXPECT_THAT(ErrorOf(document), HasSubstr("model.headSize: a head of 15 is odd"));
}

TEST(ParseJob, AModelToStartFromNeedsNoSizes) {
  json document = Valid();
  document["model"]["pretrained"] = {{"volume", "models"}, {"path", "llama"}};
  auto job = Parse(document.dump());
  ASSERT_TRUE(job.has_value()) << job.error().message;
  EXPECT_EQ(job->model.pretrained->Resolve("/volumes"), "/volumes/models/llama");
  EXPECT_TRUE(job->model.HasSizes());
  document["model"] = {{"pretrained", {{"volume", "models"}, {"path", "llama"}}}};
  job = Parse(document.dump());
  ASSERT_TRUE(job.has_value()) << job.error().message;
  EXPECT_FALSE(job->model.HasSizes());
  document["model"]["hiddenSize"] = 8;
  EXPECT_THAT(ErrorOf(document), HasSubstr("model.hiddenSize: unknown key"));
  document["model"] = {{"pretrained", {{"volume", "models"}, {"path", "../llama"}}}};
  EXPECT_THAT(ErrorOf(document), HasSubstr("model.pretrained.path: \"../llama\" leaves the volume"));
}

TEST(ParseJob, ReadsAnAdapter) {
  json document = Valid();
  document["model"]["adapter"] = {
      {"type", "LoRA"}, {"rank", 8}, {"alpha", 16}, {"dropout", 0.25}, {"quantizeBase", "NF4"}};
  EXPECT_THAT(ErrorOf(document), HasSubstr("model.adapter: needs model.pretrained"));
  document["model"]["pretrained"] = {{"volume", "models"}, {"path", "llama"}};
  auto job = Parse(document.dump());
  ASSERT_TRUE(job.has_value()) << job.error().message;
  ASSERT_TRUE(job->model.adapter);
  EXPECT_EQ(job->model.adapter->rank, 8);
  EXPECT_EQ(job->model.adapter->alpha, 16);
  EXPECT_EQ(job->model.adapter->dropout, 0.25);
  EXPECT_TRUE(job->model.adapter->nf4);
  EXPECT_TRUE(job->model.adapter->targets.empty());
  document["model"]["adapter"]["targets"] = {"q_proj", 7};
  EXPECT_THAT(ErrorOf(document), HasSubstr("model.adapter.targets: has something that is no name"));
  document["model"]["adapter"]["targets"] = {"q_proj"};
  document["model"]["adapter"]["rank"] = 0;
  EXPECT_THAT(ErrorOf(document), HasSubstr("model.adapter.rank: 0 is out of range"));
}

TEST(ParseJob, ReadsASample) {
  json document = Valid();
  document["training"]["evaluation"]["sample"] = {{"prompt", "Once"}, {"tokens", 16}, {"temperature", 0.5}};
  auto job = Parse(document.dump());
  ASSERT_TRUE(job.has_value()) << job.error().message;
  ASSERT_TRUE(job->training.sample);
  EXPECT_EQ(job->training.sample->prompt, "Once");
  EXPECT_EQ(job->training.sample->tokens, 16);
  EXPECT_EQ(job->training.sample->temperature, 0.5);
  document["data"]["validation"] = json::array();
  document["training"]["evaluation"]["everySteps"] = 0;
  EXPECT_THAT(ErrorOf(document), HasSubstr("training.evaluation.sample: samples are written at evaluations"));
}

TEST(ParseJob, NamesImpossibleCombinations) {
  EXPECT_THAT(ErrorWith("/model/attentionHeads", 12), HasSubstr("model.hiddenSize: 128 is not a multiple of"));
  EXPECT_THAT(ErrorWith("/model/attentionHeads", 128), HasSubstr("is odd"));
  EXPECT_THAT(ErrorWith("/model/kvHeads", 3), HasSubstr("is not a multiple of model.kvHeads 3"));
  EXPECT_THAT(ErrorWith("/training/sequenceLength", 512), HasSubstr("is more than model.maxPositions 256"));
  EXPECT_THAT(ErrorWith("/training/microBatchSize", 17), HasSubstr("is more than training.globalBatchSize 16"));
  EXPECT_THAT(ErrorWith("/training/schedule/warmupSteps", 401), HasSubstr("is more than training.steps 400"));
  EXPECT_THAT(ErrorWith("/model/vocabSize", 255), HasSubstr("use 256"));
  EXPECT_THAT(ErrorWith("/training/evaluation/batches", 0), HasSubstr("training.evaluation.batches: 0"));
  EXPECT_THAT(ErrorWith("/data/validation", json::array()), HasSubstr("data.validation: is empty although"));
  EXPECT_THAT(ErrorWith("/checkpoint/resume", "Step"), HasSubstr("checkpoint.resumeStep: 0 with resume Step"));
}

TEST(ParseJob, ReadsWeightsOfTrainingFiles) {
  json document = Valid();
  EXPECT_TRUE(Parse(document.dump())->data.Weights().empty());
  document["data"]["train"] = {{{"volume", "corpus"}, {"path", "a"}, {"weight", 0.25}},
                               {{"volume", "corpus"}, {"path", "b"}}};
  EXPECT_EQ(Parse(document.dump())->data.Weights(), (std::vector<double>{0.25, 1}));
  document["data"]["train"][1]["weight"] = 1;
  EXPECT_EQ(Parse(document.dump())->data.Weights(), (std::vector<double>{0.25, 1}));
  EXPECT_THAT(ErrorWith("/data/train/0/weight", 0), HasSubstr("data.train[0].weight: 0 is out of range"));
  EXPECT_THAT(ErrorWith("/data/train/0/weight", "much"), HasSubstr("data.train[0].weight: \"much\" is not a number"));
  EXPECT_THAT(ErrorWith("/data/validation/0/weight", 1), HasSubstr("data.validation[0].weight: unknown key"));
}

TEST(ParseJob, ReadsTheDocumentSeparator) {
  json document = Valid();
  EXPECT_FALSE(Parse(document.dump())->data.document_separator.has_value());
  document["data"]["documentSeparator"] = 0;
  EXPECT_EQ(Parse(document.dump())->data.document_separator, 0);
  EXPECT_THAT(ErrorWith("/data/documentSeparator", 256),
              HasSubstr("data.documentSeparator: 256 is not a token of the vocabulary of 256"));
  EXPECT_THAT(ErrorWith("/data/documentSeparator", -1), HasSubstr("data.documentSeparator: -1 is out of range"));
}

TEST(ParseJob, ReadsWhatIsWatched) {
  json document = Valid();
  const auto plain = Parse(document.dump());
  EXPECT_FALSE(plain->training.profile || plain->observe.tensorboard);
  EXPECT_EQ(plain->observe.peak_flops, 0);
  document["training"]["profile"] = {{"fromStep", 3}, {"steps", 2}};
  document["observe"] = {{"tensorboard", {{"volume", "logs"}, {"path", "tb"}}}, {"peakFlops", 9.89e14}};
  auto job = Parse(document.dump());
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(job->training.profile->from_step, 3);
  EXPECT_EQ(job->training.profile->steps, 2);
  EXPECT_FALSE(job->training.profile->directory);
  EXPECT_EQ(job->observe.tensorboard->Resolve("/volumes"), "/volumes/logs/tb");
  EXPECT_EQ(job->observe.peak_flops, 9.89e14);
  document["training"]["profile"]["volume"] = "logs";
  document["training"]["profile"]["path"] = "traces";
  EXPECT_EQ(Parse(document.dump())->training.profile->directory->Resolve("/v"), "/v/logs/traces");
  EXPECT_THAT(ErrorWith("/training/profile", {{"fromStep", 0}, {"steps", 1}}),
              HasSubstr("training.profile.fromStep: 0"));
  EXPECT_THAT(ErrorWith("/training/profile", {{"steps", 1}}), HasSubstr("training.profile.fromStep: missing"));
  EXPECT_THAT(ErrorWith("/observe", {{"colour", 1}}), HasSubstr("observe.colour: unknown key"));
  EXPECT_THAT(ErrorWith("/observe", {{"peakFlops", -1}}), HasSubstr("observe.peakFlops: -1 is out of range"));
}

TEST(ParseJob, ReadsHowRanksShareTheModel) {
  json job = Valid();
  job["parallelism"] = {{"strategy", "HSDP"}, {"shardSize", 4}, {"gradientReduction", "LastMicroBatch"}};
  const Parallelism p = Parse(job.dump()).value().parallelism;
  EXPECT_EQ(p.strategy, Strategy::kHsdp);
  EXPECT_EQ(p.stage(), 3);
  EXPECT_EQ(p.shard_size, 4);
  EXPECT_EQ(p.gradient_reduction, GradientReduction::kLastMicroBatch);
  job["parallelism"] = {{"strategy", "HSDP"}};
  EXPECT_EQ(Parse(job.dump()).value().parallelism.shard_size, 0);
  EXPECT_THAT(ErrorWith("/parallelism/shardSize", 2), HasSubstr("parallelism.shardSize: is for strategy HSDP only"));
  EXPECT_THAT(ErrorWith("/parallelism/shardSize", -1), HasSubstr("parallelism.shardSize: -1 is out of range"));
  EXPECT_THAT(ErrorWith("/parallelism/gradientReduction", "Never"),
              HasSubstr("use one of EachMicroBatch, LastMicroBatch"));
}

TEST(ParseJob, ReadsWhereTheStateOfUpdatesIs) {
  json job = Valid();
  EXPECT_EQ(Parse(job.dump()).value().parallelism.offload, Offload::kNone);
  job["parallelism"] = {{"strategy", "FSDP"}, {"offload", "CPU"}};
  EXPECT_EQ(Parse(job.dump()).value().parallelism.offload, Offload::kCpu);
  job["parallelism"] = {{"strategy", "FSDP"}, {"offload", "NVMe"}, {"offloadVolume", "scratch"}};
  const Parallelism p = Parse(job.dump()).value().parallelism;
  EXPECT_EQ(p.offload, Offload::kNvme);
  EXPECT_EQ(p.offload_volume, "scratch");
  EXPECT_THAT(ErrorWith("/parallelism/offload", "Disk"), HasSubstr("use one of CPU, NVMe"));
  EXPECT_THAT(ErrorWith("/parallelism/offload", "NVMe"),
              HasSubstr("parallelism.offloadVolume: is missing with offload NVMe; name a volume"));
  EXPECT_THAT(ErrorWith("/parallelism/offloadVolume", "scratch"),
              HasSubstr("parallelism.offloadVolume: is for offload NVMe only; remove it"));
  EXPECT_THAT(ErrorWith("/parallelism", {{"strategy", "FSDP"}, {"offload", "NVMe"}, {"offloadVolume", "a/b"}}),
              HasSubstr("parallelism.offloadVolume: \"a/b\" is not the name of a volume"));
}

TEST(ParseJob, ReportsAllProblemsInOneLine) {
  json document = Valid();
  document["training"]["steps"] = 0;
  document["model"].erase("layers");
  document["colour"] = "red";
  EXPECT_THAT(ErrorOf(document), AllOf(HasSubstr("training.steps: 0"), HasSubstr("model.layers: missing"),
                                       HasSubstr("colour: unknown key"), HasSubstr("; "), Not(HasSubstr("\n"))));
  // A missing object is one problem, not one per key in it.
  json bare = Valid();
  bare.erase("model");
  EXPECT_EQ(ErrorOf(bare), "model: missing; give an object");
}

TEST(ParseJob, RefusesWhatIsNoJob) {
  EXPECT_THAT(Parse("{\"contract\": 1,").error().message, HasSubstr("not JSON at byte"));
  EXPECT_THAT(Parse("[]").error().message, HasSubstr("the document: an array is not an object"));
  EXPECT_FALSE(Parse("").has_value());
}

TEST(LoadJob, NamesTheFile) {
  const auto file = std::filesystem::temp_directory_path() / ("trainyard-job-" + std::to_string(getpid()));
  auto missing = Load(file.string());
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr(file.string()));
  std::ofstream(file) << Valid().dump();
  EXPECT_TRUE(Load(file.string()).has_value());
  std::ofstream(file) << "{}";
  EXPECT_THAT(Load(file.string()).error().message, HasSubstr(file.string() + ": contract: missing"));
  std::filesystem::remove(file);
}

TEST(CheckTogether, MoreRanksThanSequencesAreRefused) {
  const Job job = Parse(Valid().dump()).value();
  RankEnv env;
  env.world = 16;
  env.uid = "u-1";
  EXPECT_TRUE(CheckTogether(job, env).has_value());
  env.world = 17;
  EXPECT_THAT(CheckTogether(job, env).error().message,
              HasSubstr("training.globalBatchSize: 16 is less than WORLD_SIZE 17"));
  env.world = 1;
  env.uid = "u-2";
  EXPECT_THAT(CheckTogether(job, env).error().message, HasSubstr("TRAINYARD_JOB_UID: u-2 is not job.uid u-1"));
}

TEST(CheckTogether, ShardGroupsHaveToDivideTheRanks) {
  json text = Valid();
  const auto sizes = [&](const char* strategy, int shard_size, int world, int local) {
    text["parallelism"] = {{"strategy", strategy}};
    if (shard_size > 0) text["parallelism"]["shardSize"] = shard_size;
    const Job job = Parse(text.dump()).value();
    RankEnv env;
    env.world = world;
    env.local_world = local;
    if (const Status fit = CheckTogether(job, env); !fit) return fit.error().message;
    return std::to_string(ShardSize(job.parallelism, env));
  };
  EXPECT_EQ(sizes("DDP", 0, 6, 2), "1");
  EXPECT_EQ(sizes("ZeRO1", 0, 6, 2), "6");
  EXPECT_EQ(sizes("FSDP", 0, 6, 2), "6");
  EXPECT_EQ(sizes("HSDP", 0, 6, 2), "2");
  EXPECT_EQ(sizes("HSDP", 3, 6, 2), "3");
  EXPECT_THAT(sizes("HSDP", 4, 6, 2), HasSubstr("parallelism.shardSize: groups of 4 do not divide WORLD_SIZE 6"));
  EXPECT_THAT(sizes("HSDP", 0, 6, 4), HasSubstr("groups of 4 ranks, as many as a node has, do not divide"));
}

}  // namespace
}  // namespace trainyard::config
