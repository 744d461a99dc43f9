// `trainyard generate` as people run it: the command line and the program that it becomes.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/trainer/checkpoint/model_sample.h"
#include "tests/trainer/checkpoint/peft_sample.h"
#include "trainer/checkpoint/base_hash.h"
#include "trainer/checkpoint/export.h"
#include "trainer/checkpoint/reader.h"

namespace trainyard::checkpoint {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Outcome {
  int code = -1;
  std::string out, err;
};

class GenerateProgram : public ::testing::Test {
 protected:
  // A Llama of bytes: a checkpoint of step 5, and the same as a Hugging Face directory.
  GenerateProgram() {
    ModelDescription model = SmallLlama();
    model.vocab = 256;
    SaveModel(root(), model, 5, 2);
    Result<Reader> reader = Reader::Open(root() + "/" + StepDirectory(5));
    EXPECT_TRUE(reader);
    EXPECT_TRUE(ExportHuggingFace(*reader, published(), {}));
  }
  std::string root() const { return temp_.path() + "/job"; }
  std::string published() const { return temp_.path() + "/published"; }

  Outcome Generate(const std::string& arguments, const std::string& input = "") const {
    const std::string in = temp_.path() + "/in", err = temp_.path() + "/err";
    std::ofstream(in) << input;
    FILE* pipe = popen(
        (std::string(TRAINYARD_BIN_DIR) + "/trainyard generate " + arguments + " <" + in + " 2>" + err).c_str(), "r");
    Outcome outcome;
    char buffer[4096];
    while (const size_t got = fread(buffer, 1, sizeof buffer, pipe)) outcome.out.append(buffer, got);
    outcome.code = WEXITSTATUS(pclose(pipe));
    std::stringstream text;
    text << std::ifstream(err).rdbuf();
    outcome.err = text.str();
    return outcome;
  }
  nlohmann::json Json(const std::string& arguments) const {
    const Outcome outcome = Generate(arguments + " -o json");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out);
  }

  TempDirectory temp_;
};

TEST_F(GenerateProgram, ADirectoryOfCheckpointsAndItsExportSayTheSame) {
  const nlohmann::json ours = Json("--checkpoint " + root() + " --prompt hello --tokens 12");
  EXPECT_EQ(ours["tokens"].size(), 12U);
  EXPECT_EQ(ours["promptTokens"], 5);
  EXPECT_EQ(ours["stop"], "Tokens");
  EXPECT_EQ(ours["precision"], "FP32");
  EXPECT_GT(ours["tokensPerSecond"].get<double>(), 0);
  for (const std::string& place : {"--checkpoint " + root() + " --step 5", "--model " + published()}) {
    EXPECT_EQ(Json(place + " --prompt hello --tokens 12")["tokens"], ours["tokens"]) << place;
  }
  // As text, with the prompt from standard input and a line of figures.
  const Outcome text = Generate("--model " + published() + " --prompt - --tokens 12 -v", "hello");
  EXPECT_EQ(text.code, 0);
  EXPECT_EQ(text.out, ours["text"].get<std::string>() + "\n");
  EXPECT_THAT(text.err, HasSubstr("parameters in FP32, read in "));
  EXPECT_THAT(text.err, HasSubstr("prompt of 5 tokens in "));
  EXPECT_EQ(std::count(text.err.begin(), text.err.end(), '\n'), 1);
}

TEST_F(GenerateProgram, EndsWithTheLastPosition) {
  const nlohmann::json all = Json("--model " + published() + " --prompt hello --tokens 1000");
  EXPECT_EQ(all["stop"], "Positions");
  EXPECT_EQ(all["tokens"].size(), 28U);  // of 32 positions 5 are the prompt's; the last token needs none
}

TEST_F(GenerateProgram, DrawsByTheSeed) {
  const auto drawn = [&](int seed) {
    return Json("--model " + published() + " --prompt hello --tokens 20 --temperature 1e6 --seed " +
                std::to_string(seed))["tokens"];
  };
  EXPECT_EQ(drawn(1), drawn(1));
  EXPECT_NE(drawn(1), drawn(2));
}

TEST_F(GenerateProgram, SaysWhichAdapterItTook) {
  ModelDescription model = SmallLlama();
  model.vocab = 256;
  Result<ForeignModel> base = ForeignModel::Open(published(), model);
  ASSERT_TRUE(base);
  const AdapterState state{.model = model,
                           .adapter = {.rank = 2, .alpha = 4, .targets = {"q_proj"}},
                           .base = *HashBase(*base, model, published())};
  const std::string adapters = temp_.path() + "/adapters", four = adapters + "/" + StepDirectory(4);
  SaveAdapter(adapters, state, 4, 1);
  const std::string with = "--model " + published() + " --prompt hello --tokens 4 -v --adapter ";
  const nlohmann::json plain = Json("--model " + published() + " --prompt hello --tokens 4");
  EXPECT_FALSE(plain.contains("adapter"));
  // A newer one that is cut off: the older one is taken, and both are said.
  SaveAdapter(temp_.path() + "/more", state, 8, 1);
  const std::string eight = adapters + "/" + StepDirectory(8);
  std::filesystem::rename(temp_.path() + "/more/" + StepDirectory(8), eight);
  std::filesystem::remove(eight + "/" + ShardPath("model", 0));
  Outcome outcome = Generate(with + adapters + " -o json");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, StartsWith("trainyard: skipped step-00000008 is bad: "));
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["adapter"],
            (nlohmann::json{{"path", four}, {"step", 4}, {"baseCompared", true}}));
  outcome = Generate(with + adapters);
  EXPECT_THAT(outcome.err, HasSubstr(published() + ", with the adapter in " + four +
                                     " of step 4 (the base is the one it was trained on): "));
  // PEFT's layout does not say of which base it is.
  const std::string peft = temp_.path() + "/peft";
  WritePeft(peft, model, state.adapter);
  outcome = Generate(with + peft + " -o json");
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["adapter"], (nlohmann::json{{"path", peft}, {"baseCompared", false}}));
  outcome = Generate(with + peft);
  EXPECT_THAT(outcome.err, HasSubstr(", with the adapter in " + peft + " (the base was not compared): "));
  EXPECT_EQ(Generate(with + temp_.path() + "/none").code, 4);
}

TEST_F(GenerateProgram, WhatIsWrongIsOneLine) {
  const auto wrong = [&](const std::string& arguments, int code) {
    const Outcome outcome = Generate(arguments);
    EXPECT_EQ(outcome.code, code) << arguments << "\n" << outcome.err;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_THAT(outcome.err, StartsWith("trainyard: "));
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    return outcome.err;
  };
  EXPECT_THAT(wrong("--model " + temp_.path() + "/none --prompt x", 4), HasSubstr("none does not exist"));
  EXPECT_THAT(wrong("--model " + published() + " --prompt " + std::string(33, 'x'), 2),
              HasSubstr("the prompt has 33 tokens, the model in " + published() + " 32 positions"));
  EXPECT_THAT(wrong("--model " + published() + " --prompt ''", 2), HasSubstr("prompt"));
  EXPECT_THAT(wrong("--model " + published() + " --prompt $(printf '\\377\\376')", 2),
              HasSubstr("--prompt: byte 0 is not UTF-8"));
  EXPECT_THAT(wrong("--model " + published() + " --prompt x --seed -1", 2), HasSubstr("--seed: -1 is not a whole"));
  EXPECT_THAT(wrong("--model " + published() + " --prompt x >/dev/full", 3), HasSubstr("standard output"));
  EXPECT_THAT(wrong("--model " + published() + " --chat --prompt x", 2), HasSubstr("has a chat template"));
  EXPECT_THAT(wrong("--model " + published() + " --tokenizer " + temp_.path() + "/none --prompt x", 4),
              HasSubstr("does not exist"));
  EXPECT_EQ(truncate((published() + "/model.safetensors").c_str(), 5000), 0);
  EXPECT_THAT(wrong("--model " + published() + " --prompt x", 1), HasSubstr(published() + "/model.safetensors"));
  EXPECT_THAT(wrong("--model " + published(), 2), HasSubstr("--prompt is required"));
}

}  // namespace
}  // namespace trainyard::checkpoint
