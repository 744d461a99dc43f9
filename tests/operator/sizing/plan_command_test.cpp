// What `trainyard plan` prints, against golden files in tests/golden/plan. UPDATE_GOLDEN=1 writes them anew.
#include "operator/cli/plan/plan_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "operator/cli/exit_codes.h"

namespace trainyard::cli {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  int exit_code = -1;
  std::string out;
  std::string err;
};

Outcome Plan(const std::string& arguments) {
  Outcome outcome;
  std::ostringstream out, err;
  CLI::App app("trainyard");
  AddPlanCommand(app, outcome.exit_code, out, err);
  try {
    app.parse("plan " + arguments);
  } catch (const CLI::ParseError& error) {
    ADD_FAILURE() << error.what();
  }
  outcome.out = out.str();
  outcome.err = err.str();
  return outcome;
}

void ExpectGolden(const std::string& name, const std::string& arguments) {
  const Outcome outcome = Plan(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const std::string path = std::string(TRAINYARD_SOURCE_DIR) + "/tests/golden/plan/" + name;
  const char* update = std::getenv("UPDATE_GOLDEN");
  if (update != nullptr && std::string(update) == "1") {
    std::ofstream(path) << outcome.out;
    return;
  }
  std::ifstream in(path);
  ASSERT_TRUE(in) << path << " is missing: run with UPDATE_GOLDEN=1";
  std::ostringstream golden;
  golden << in.rdbuf();
  EXPECT_EQ(outcome.out, golden.str()) << name << " differs; if that is meant, run with UPDATE_GOLDEN=1";
}

class TemporaryFile {
 public:
  TemporaryFile(const std::string& name, const std::string& text)
      : path_(std::filesystem::temp_directory_path() / ("trainyard-plan-" + std::to_string(::getpid()) + "-" + name)) {
    std::ofstream(path_) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

constexpr const char* kExample = "--model 7B --product H100-SXM --single-gpu-hours 100 --price 255 --count 2,4,8 ";

TEST(PlanCommand, Example) {
  ExpectGolden("example.txt", kExample);
  ExpectGolden("example.json", std::string(kExample) + "-o json");
  ExpectGolden("example-rounded.json", std::string(kExample) + "--round-hours -o json");
}

TEST(PlanCommand, JsonHasTheFiguresOfTheReferenceAndExactlyThePromisedKeys) {
  const auto plan = nlohmann::json::parse(Plan(std::string(kExample) + "-o json").out);
  EXPECT_EQ(plan.at("model"), (nlohmann::json{{"parameters", 7000000000}, {"stateBytes", 112000000000}}));
  EXPECT_EQ(plan.at("minimum").at("stateOnly"), 2);
  EXPECT_EQ(plan.size(), 3u);
  const auto& options = plan.at("options");
  ASSERT_EQ(options.size(), 3u);
  const double efficiency[] = {0.9, 0.85, 0.8};
  for (size_t i = 0; i < 3; ++i) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : options[i].items()) keys.push_back(key);
    EXPECT_THAT(keys, testing::UnorderedElementsAre("product", "gpus", "perNode", "strategy", "microBatch", "fits",
                                                    "perGPU", "efficiency", "hours", "cost", "checkpointBytes", "why"));
    keys.clear();
    for (const auto& [key, value] : options[i].at("perGPU").items()) keys.push_back(key);
    EXPECT_THAT(keys, testing::UnorderedElementsAre("weights", "gradients", "master", "optimizer", "activations",
                                                    "logits", "buffers", "overhead", "total", "capacity"));
    EXPECT_EQ(options[i].at("efficiency").get<double>(), efficiency[i]);  // 0.9, not 0.8999...
  }
  EXPECT_EQ(options[0].at("hours").get<double>(), 55.555556);
  const auto rounded = nlohmann::json::parse(Plan(std::string(kExample) + "--round-hours -o json").out);
  EXPECT_EQ(rounded.at("options")[0].at("hours"), 56);
  EXPECT_EQ(rounded.at("options")[0].at("cost"), 28560);
}

TEST(PlanCommand, ReferenceTables) {
  ExpectGolden("1b.txt", "--model 1B --product RTX-4090");
  ExpectGolden("3b.txt", "--model 3B --product A100-80GB-SXM");
  ExpectGolden("7b.txt", "--model 7B --product A100-80GB-SXM");
  ExpectGolden("8b.txt", "--model 8B --product H100-SXM");
  ExpectGolden("13b.txt", "--model 13B --product A100-80GB-SXM");
  ExpectGolden("34b.txt", "--model 34B --product H100-SXM");
  ExpectGolden("70b.txt", "--model 70B --product H200-SXM");
}

TEST(PlanCommand, SlowerGpusAtTheirOwnPrice) {
  ExpectGolden("a100.txt", "--model 7B --product A100-80GB-SXM --count 4 --single-gpu-hours 250 --price 102");
  ExpectGolden("two-products.txt",
               "--model 7B --product H100-SXM,A100-80GB-SXM --count 4 --single-gpu-hours 100 --price "
               "H100-SXM=255,A100-80GB-SXM=102 --round-hours");
}

TEST(PlanCommand, EveryProduct) { ExpectGolden("all-products.txt", "--model 7B"); }

constexpr const char* kJob = R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: quick}
spec:
  model: {architecture: {layers: 6, hiddenSize: 192, attentionHeads: 6, kvHeads: 2, tiedEmbeddings: true}}
  data: {train: [{volume: corpus, path: train.txt}]}
  training: {device: CPU, precision: FP32, steps: 400, sequenceLength: 256, globalBatchSize: 16}
  gpus: {count: 2}
  checkpoint: {volume: corpus}
  volumes: [{name: corpus, hostPath: {path: /data}}]
)";

TEST(PlanCommand, AJobOnSimulatedNodes) {
  const TemporaryFile job("job.yaml", kJob);
  ExpectGolden("job.txt", "--job " + job.path());
  const auto plan = nlohmann::json::parse(Plan("--job " + job.path() + " --count 4 --strategy fsdp -o json").out);
  EXPECT_EQ(plan.at("options")[0].at("gpus"), 4);
  EXPECT_EQ(plan.at("options")[0].at("strategy"), "FSDP");
  EXPECT_EQ(plan.at("options")[0].at("product"), "Simulated");
  EXPECT_TRUE(plan.at("options")[0].at("cost").is_null());
}

TEST(PlanCommand, AConfigFile) {
  const TemporaryFile config("config.json", R"({"architectures": ["GPT2LMHeadModel"], "n_embd": 768, "n_head": 12,
    "n_layer": 12, "n_positions": 1024, "vocab_size": 50257})");
  const auto plan = nlohmann::json::parse(Plan("--config " + config.path() + " --product L4 -o json").out);
  EXPECT_EQ(plan.at("model").at("parameters"), 124439808);
  EXPECT_EQ(plan.at("minimum").at("full"), 1);
}

void ExpectBad(const std::string& arguments, const std::string& message, int exit_code = kExitBadInput) {
  const Outcome outcome = Plan(arguments);
  EXPECT_EQ(outcome.exit_code, exit_code) << arguments;
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr(message));
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
}

TEST(PlanCommand, BadInputIsOneLine) {
  ExpectBad("", "give --model 7B, --config config.json or --job job.yaml");
  ExpectBad("--model 7B --job x.yaml", "give only one of --model, --config and --job");
  ExpectBad("--model 7Q", "--model: '7Q' is not a parameter count");
  ExpectBad("--model 12", "--model: a model of 12 parameters cannot be planned");
  ExpectBad("--model 7B --product H100-SMX",
            "--product: 'H100-SMX' is no known GPU product; the nearest names are H100-SXM");
  ExpectBad("--model 7B --count 1024", "GPU count 1024 is more than the global batch of 512 sequences");
  ExpectBad("--model 7B --price 255", "--price gives a cost only together with --single-gpu-hours or --tokens");
  ExpectBad("--model 7B --tokens 1T --price cheap", "--price: 'cheap' is not a price");
  ExpectBad("--model 7B --tokens 1T --price H100-SMX=3", "'H100-SMX' is no known GPU product");
  ExpectBad("--model 7B --tokens lots", "--tokens: 'lots' is not a number of tokens");
  ExpectBad("--model 7B --strategy ZeRO9", "--strategy: ");
  ExpectBad("--model 7B --precision FP8", "--precision: 'FP8' is neither BF16 nor FP32");
  ExpectBad("--model 7B --per-node 0", "--per-node: 0 is not at least 1");
  ExpectBad("--config /nowhere/config.json", "/nowhere/config.json: no such file", kExitNotFound);
  ExpectBad("--job /nowhere/job.yaml", "/nowhere/job.yaml: no such file", kExitNotFound);
  const TemporaryFile text("not.json", "layers: 6");
  ExpectBad("--config " + text.path(), "not JSON");
  const TemporaryFile other("pod.yaml", "kind: Pod\nmetadata: {name: x}\n");
  ExpectBad("--job " + other.path(), "holds no TrainingJob");
  const TemporaryFile t5("t5.json", R"({"architectures": ["T5ForConditionalGeneration"]})");
  ExpectBad("--config " + t5.path(), "architecture T5ForConditionalGeneration is not known here");
}

}  // namespace
}  // namespace trainyard::cli
