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

#include "operator/api/yaml.h"
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

std::vector<std::string> KeysOf(const nlohmann::json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

TEST(PlanCommand, JsonHasTheFiguresOfTheReferenceAndExactlyThePromisedKeys) {
  using testing::UnorderedElementsAre;
  const auto plan = nlohmann::json::parse(Plan(std::string(kExample) + "-o json").out);
  EXPECT_THAT(KeysOf(plan), UnorderedElementsAre("model", "request", "minimum", "minimums", "options", "chosen",
                                                 "notChosen", "range", "runnersUp", "advice", "warnings", "waysOut"));
  EXPECT_EQ(plan.at("model").at("parameters"), 7000000000);
  EXPECT_EQ(plan.at("model").at("stateBytes"), 112000000000);
  EXPECT_EQ(plan.at("minimum").at("stateOnly"), 2);
  const auto& options = plan.at("options");
  ASSERT_EQ(options.size(), 3u);
  const double efficiency[] = {0.9, 0.85, 0.8};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_THAT(
        KeysOf(options[i]),
        UnorderedElementsAre("product", "gpus", "perNode", "strategy", "shardRanks", "replicas", "recompute", "offload",
                             "microBatch", "accumulation", "effectiveBatch", "fits", "tight", "stateFits", "perGPU",
                             "host", "mfu", "efficiency", "expectedEfficiency", "speedup", "stepSeconds",
                             "tokensPerSecond", "hours", "cost", "checkpointBytes", "why"));
    EXPECT_THAT(KeysOf(options[i].at("perGPU")),
                UnorderedElementsAre("weights", "gradients", "master", "optimizer", "activations", "logits", "buffers",
                                     "overhead", "total", "capacity"));
    EXPECT_THAT(KeysOf(options[i].at("host")), UnorderedElementsAre("pinned", "offloaded", "nvme", "disk"));
    EXPECT_EQ(options[i].at("efficiency").get<double>(), efficiency[i]);  // 0.9, not 0.8999...
  }
  EXPECT_EQ(options[0].at("hours").get<double>(), 55.555556);
  EXPECT_LT(plan.at("chosen").get<size_t>(), options.size());
  const auto rounded = nlohmann::json::parse(Plan(std::string(kExample) + "--round-hours -o json").out);
  EXPECT_EQ(rounded.at("options")[0].at("hours"), 56);
  EXPECT_EQ(rounded.at("options")[0].at("cost"), 28560);
}

TEST(PlanCommand, SizesTheStateOfTheOptimizer) {
  const std::string base = "--model 7B --product H100-SXM --count 8 --strategy FSDP ";
  const auto option = [&](const std::string& flags) {
    return nlohmann::json::parse(Plan(base + flags + " -o json").out).at("options").at(0);
  };
  const auto state = [&](const std::string& flags) {
    return option(flags).at("perGPU").at("optimizer").get<int64_t>();
  };
  const int64_t adam = state("");
  EXPECT_NEAR(static_cast<double>(adam), 7e9, 7e7) << "8 bytes of 7B parameters over 8 GPUs";
  EXPECT_EQ(state("--optimizer SGD --momentum 0.9"), adam / 2);
  EXPECT_EQ(state("--optimizer SGD"), 0);
  EXPECT_EQ(option("").at("checkpointBytes"), 84'000'000'000);
  EXPECT_EQ(option("--optimizer SGD --momentum 0.9").at("checkpointBytes"), 56'000'000'000);
  EXPECT_EQ(option("--optimizer SGD").at("checkpointBytes"), 28'000'000'000);
  EXPECT_THAT(Plan(base + "--optimizer SGD --explain").out, HasSubstr("none: SGD without momentum keeps nothing"));
  const std::string said = Plan(base + "--optimizer SGD --momentum 0.9 --explain").out;
  EXPECT_THAT(said, HasSubstr("SGD with momentum"));
  EXPECT_THAT(said, HasSubstr("4 bytes per parameter, the momentum, cut over 8 GPUs"));
}

TEST(PlanCommand, YamlSaysTheSameAsJson) {
  const auto json = nlohmann::json::parse(Plan(std::string(kExample) + "-o json").out);
  const auto yaml = api::LoadYaml(Plan(std::string(kExample) + "-o yaml").out, "plan");
  ASSERT_TRUE(yaml) << yaml.error().message;
  ASSERT_EQ(yaml->size(), 1u);
  EXPECT_EQ((*yaml)[0], json);
}

TEST(PlanCommand, OtherOutputs) {
  ExpectGolden("example.md", std::string(kExample) + "-o markdown --currency EUR");
  ExpectGolden("example-explained.txt", std::string(kExample) + "--explain");
  ExpectGolden("links.txt", "--links");
  EXPECT_EQ(Plan(std::string(kExample) + "-o text").out, Plan(kExample).out);  // the older name of table
  EXPECT_THAT(Plan("--links -o markdown").out, HasSubstr("| H100-SXM | NVLink 4, NVSwitch | 900 | 450 |"));
}

TEST(PlanCommand, ExplainSaysThatAGpuHasAPartOfTheModel) {
  const std::string whole = Plan("--model 7B --product H100-SXM --count 4 --explain").out;
  EXPECT_THAT(whole, HasSubstr("2 bytes per parameter (BF16), whole on every GPU"));
  const std::string parts =
      Plan("--model 7B --product H100-SXM --count 16 --tensor-parallel 4 --pipeline-parallel 2 --explain").out;
  EXPECT_THAT(parts, HasSubstr("one of 8 parts of the model"));
  EXPECT_THAT(parts, HasSubstr("32 blocks over 2 stages"));
  EXPECT_THAT(parts, testing::Not(HasSubstr("whole on every GPU")));
}

// Terminals are 120 columns wide; a line that is cut in two is unreadable.
TEST(PlanCommand, NoLineIsLongerThanATerminal) {
  for (const char* arguments :
       {"--model 7B --tokens 1T --price 2.95 --currency USD --explain",
        "--model 70B --product H200-SXM --explain --tokens 15T --price 3.5 --offload None,CPU,NVMe",
        "--model 34B --product RTX-4090 --count 1-8 --explain", "--links",
        "--model 7B --adapter QLoRA --product RTX-4090 --explain"}) {
    const Outcome outcome = Plan(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    std::istringstream lines(outcome.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 120u) << arguments << "\n" << line;
  }
}

TEST(PlanCommand, CountsAreAListOrARange) {
  auto counts = [](const std::string& flag) {
    const auto plan = nlohmann::json::parse(Plan("--model 1B --product H100-SXM " + flag + " -o json").out);
    std::vector<int64_t> out;
    for (const auto& option : plan.at("options")) out.push_back(option.at("gpus").get<int64_t>());
    return out;
  };
  EXPECT_THAT(counts("--count 8,2"), testing::ElementsAre(2, 8));
  EXPECT_THAT(counts("--count 1-8"), testing::ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(counts("--count 3-18"), testing::ElementsAre(3, 4, 8, 16, 18));
  EXPECT_THAT(counts("--count 1-2,16 --count 6"), testing::ElementsAre(1, 2, 6, 16));
}

TEST(PlanCommand, StepsAndShortNamesOfFlags) {
  const auto tokens = nlohmann::json::parse(
      Plan("--model 1B --product L4 --tokens 2097152000 --batch 512 --sequence 4096 -o json").out);
  const auto steps = nlohmann::json::parse(
      Plan("--model 1B --product L4 --steps 1000 --global-batch 512 --sequence-length 4096 -o json").out);
  EXPECT_EQ(tokens, steps);
  EXPECT_TRUE(steps.at("options")[0].at("hours").is_number());
}

TEST(PlanCommand, ACatalogueOfYourOwn) {
  const TemporaryFile file("gpus.yaml", R"(currency: EUR
products:
  - {name: H100-SXM, pricePerHour: 2.5}
  - {name: Lab-GPU, memoryMiB: 49152, bf16TFLOPS: 200}
)");
  const Outcome outcome = Plan("--model 3B --product H100-SXM,Lab-GPU --tokens 10B --catalogue " + file.path());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("Lab-GPU"));
  EXPECT_THAT(outcome.out, HasSubstr("COST, EUR"));
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
  ExpectBad("", "give --model 7B, --config DIRECTORY or --job job.yaml");
  ExpectBad("--model 7B --job x.yaml", "give only one of --model, --config and --job");
  ExpectBad("--model 7Q", "--model: '7Q' is not a parameter count");
  ExpectBad("--model 12", "--model: a model of 12 parameters cannot be planned");
  ExpectBad("--model 7B --product H100-SMX",
            "--product: 'H100-SMX' is no known GPU product; the nearest names are H100-SXM");
  ExpectBad("--model 7B --count 1024", "GPU count 1024 is more than the global batch of 512 sequences");
  for (const char* count : {"0", "-1", "8-1", "1-", "two", "1e3", "9999999999999999999"}) {
    ExpectBad(std::string("--model 7B --count=") + count, "--count: '" + std::string(count) + "' is not a GPU count");
  }
  for (const char* counts : {"2,,4", ",2", "2,", ","}) {
    ExpectBad(std::string("--model 7B --count ") + counts, "--count: '" + std::string(counts) + "' has an empty item");
  }
  ExpectBad("--model 7B --product H100-SXM,,L4", "--product: 'H100-SXM,,L4' has an empty item");
  ExpectBad("--model 7B --offload None,", "--offload: 'None,' has an empty item");
  ExpectBad("--model 7B --tokens 1T --price 2,,3", "--price: '2,,3' has an empty item");
  ExpectBad("--model 7B --strategy ZeRO9", "--strategy: ");
  ExpectBad("--model 7B --precision FP8", "--precision: 'FP8' is not known; give BF16 or FP32");
  ExpectBad("--model 7B --optimizer Lion", "--optimizer: 'Lion' is not known; give AdamW, AdamW8bit, Adafactor or SGD");
  ExpectBad("--model 7B --momentum 0.9", "--momentum needs --optimizer SGD");
  ExpectBad("--model 7B --optimizer SGD --momentum 1", "--momentum: '1' is not a number from 0 to below 1");
  ExpectBad("--model 7B --optimizer SGD --momentum nan", "--momentum: 'nan' is not a number from 0 to below 1");
  ExpectBad("--model 7B --adapter DoRA", "--adapter: 'DoRA' is not known; give None, LoRA or QLoRA");
  ExpectBad("--model 7B --adapter-rank 8", "--adapter-rank needs --adapter LoRA or --adapter QLoRA");
  ExpectBad("--model 7B --adapter-targets q_proj", "--adapter-targets needs --adapter LoRA or --adapter QLoRA");
  ExpectBad("--model 7B --adapter LoRA --adapter-targets q_proj,qproj",
            "--adapter-targets: no matrix of the model's blocks is called 'qproj'; there are q_proj, k_proj");
  ExpectBad("--model 7B --adapter LoRA --adapter-rank 0", "--adapter-rank: '0' is not a whole number of at least 1");
  ExpectBad("--model 7B --offload Disk", "--offload: 'Disk' is not known; give None, CPU or NVMe");
  ExpectBad("--model 7B --goal Best", "--goal: 'Best' is not known; give Cheapest or Fastest");
  ExpectBad("--model 7B --per-node 0", "--per-node: '0' is not a whole number of at least 1");
  ExpectBad("--model 7B --sequence 0", "--sequence: '0' is not a whole number of at least 1");
  ExpectBad("--model 7B --batch 1.5", "--batch: '1.5' is not a whole number of at least 1");
  ExpectBad("--model 7B --micro-batch=-1", "--micro-batch: '-1' is not a whole number of at least 0");
  ExpectBad("--model 7B --tensor-parallel 0", "--tensor-parallel: '0' is not a whole number of at least 1");
}

TEST(PlanCommand, BadHoursAndMoneyAreOneLine) {
  ExpectBad("--model 7B --price 255",
            "--price gives a cost only together with --single-gpu-hours, --tokens or --steps");
  for (const char* price : {"cheap", "nan", "NaN", "inf", "-inf", "-1", "1e999", "H100-SXM=", "H100-SXM=nan"}) {
    ExpectBad(std::string("--model 7B --tokens 1T --price=") + price, "--price: '");
  }
  ExpectBad("--model 7B --tokens 1T --price =3", "names no product before '='");
  ExpectBad("--model 7B --tokens 1T --price H100-SMX=3", "--price: 'H100-SMX' is no known GPU product");
  ExpectBad("--model 7B --tokens lots", "--tokens: 'lots' is not a number of tokens");
  ExpectBad("--model 7B --tokens 1T --steps 5", "give only one of --tokens and --steps");
  for (const char* hours : {"0", "-3", "nan", "inf", "soon"}) {
    ExpectBad(std::string("--model 7B --single-gpu-hours=") + hours,
              "--single-gpu-hours: '" + std::string(hours) + "' is not a number of hours above 0");
    ExpectBad(std::string("--model 7B --tokens 1T --max-hours=") + hours, "--max-hours: '" + std::string(hours) + "'");
  }
  ExpectBad("--model 7B --max-hours 5", "--max-hours needs --single-gpu-hours, --tokens or --steps");
  ExpectBad("--model 7B --max-cost 5", "--max-cost needs --single-gpu-hours, --tokens or --steps, and --price");
}

TEST(PlanCommand, AnEmptyValueIsOneLine) {
  for (const char* flag : {"--model",
                           "--count",
                           "--per-node",
                           "--adapter-rank",
                           "--momentum",
                           "--sequence",
                           "--sequence-length",
                           "--batch",
                           "--global-batch",
                           "--micro-batch",
                           "--tensor-parallel",
                           "--pipeline-parallel",
                           "--single-gpu-hours",
                           "--tokens",
                           "--steps",
                           "--price",
                           "--max-hours",
                           "--max-cost",
                           "--product",
                           "--strategy",
                           "--offload",
                           "--config",
                           "--job"}) {
    SCOPED_TRACE(flag);
    int exit_code = -1;
    std::ostringstream out, err;
    CLI::App app("trainyard");
    AddPlanCommand(app, exit_code, out, err);
    std::vector<std::string> arguments = {"plan", flag, ""};
    if (std::string(flag) != "--model") arguments.insert(arguments.end(), {"--model", "7B"});
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    app.parse(arguments);
    EXPECT_EQ(exit_code, kExitBadInput);
    EXPECT_EQ(out.str(), "");
    EXPECT_THAT(err.str(), testing::MatchesRegex("trainyard plan: --[a-z-]+: needs a value\n"));
    // "--batch, --global-batch" are one flag of two names.
    if (std::string(flag) != "--global-batch" && std::string(flag) != "--sequence-length") {
      EXPECT_THAT(err.str(), HasSubstr(std::string(flag) + ": "));
    }
    const std::string unfinished = std::string(flag) + "=";
    const char* const line[] = {"trainyard", "plan", unfinished.c_str(), "--explain"};
    EXPECT_EQ(EmptyArgument(line), flag + std::string(": needs a value"));
  }
  const char* const whole[] = {"trainyard", "plan", "--price=H100-SXM=", "--batch", "=", "--", "--price="};
  EXPECT_EQ(EmptyArgument(whole), std::nullopt);
  const char* const server[] = {"trainyard", "top", "--server", ""};
  EXPECT_EQ(EmptyArgument(server), "--server: needs a value, and '' is none");
  const char* const name[] = {"trainyard", "get", ""};
  EXPECT_EQ(EmptyArgument(name), "an argument is empty ('')");
}

TEST(PlanCommand, BadFilesAreOneLine) {
  ExpectBad("--config /nowhere/config.json", "/nowhere/config.json: no such file", kExitNotFound);
  ExpectBad("--job /nowhere/job.yaml", "/nowhere/job.yaml: no such file", kExitNotFound);
  ExpectBad("--model 7B --catalogue /nowhere/gpus.yaml", "/nowhere/gpus.yaml: no such file", kExitNotFound);
  const TemporaryFile text("not.json", "layers: 6");
  ExpectBad("--config " + text.path(), "not JSON");
  const TemporaryFile other("pod.yaml", "kind: Pod\nmetadata: {name: x}\n");
  ExpectBad("--job " + other.path(), "holds no TrainingJob");
  const TemporaryFile t5("t5.json", R"({"architectures": ["T5ForConditionalGeneration"]})");
  ExpectBad("--config " + t5.path(), "architecture T5ForConditionalGeneration is not known here");
}

}  // namespace
}  // namespace trainyard::cli
