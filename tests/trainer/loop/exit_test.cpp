// Everything that can be wrong with a job ends in one clear line, the contract's exit code, and nothing half-written.
#include <sys/mount.h>

#include "operator/http/server.h"
#include "tests/trainer/loop/job_fixture.h"
#include "trainer/checkpoint/reader.h"

namespace trainyard::loop {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A small file system of its own, gone with the test.
class TinyVolume {
 public:
  explicit TinyVolume(std::string path)
      : path_(std::move(path)), mounted_(mount("trainyard-test", path_.c_str(), "tmpfs", 0, "size=600k") == 0) {}
  ~TinyVolume() {
    if (mounted_) umount2(path_.c_str(), MNT_DETACH);
  }
  TinyVolume(const TinyVolume&) = delete;
  bool mounted() const { return mounted_; }

 private:
  std::string path_;
  bool mounted_;
};

// A token file of 2-byte tokens: the form of docs/data.md.
std::string TokenFile(const std::vector<uint16_t>& tokens, uint64_t vocab) {
  const uint32_t version_and_width[2] = {1, 2};
  const uint64_t count_and_vocab[2] = {tokens.size(), vocab};
  return "TYTOKEN1" + std::string(reinterpret_cast<const char*>(version_and_width), 8) +
         std::string(reinterpret_cast<const char*>(count_and_vocab), 16) +
         std::string(reinterpret_cast<const char*>(tokens.data()), tokens.size() * 2);
}

class ExitTest : public JobTest {
 protected:
  // Runs one rank to its end and checks code and termination message.
  void Expect(int code, const std::string& failure_class, const ::testing::Matcher<std::string>& message,
              int attempt = 1, int world = 1) {
    Attempt run = RunToEnd(world, attempt, code);
    const auto end = run.Termination();
    ASSERT_TRUE(end.is_object()) << run.process->Log();
    EXPECT_EQ(end["class"], failure_class);
    EXPECT_THAT(end["message"].get<std::string>(), message);
    EXPECT_THAT(end["message"].get<std::string>(), HasSubstr("trainyard-trainer: rank "));
    if (end["rank"] != 0) return;  // else rank 0 may have been told to stop before it could say anything
    EXPECT_EQ(run.StatusFile().value("phase", ""), "Failed") << "however early it was";
    EXPECT_THAT(run.StatusFile().value("message", ""), message);
  }
};

TEST_F(ExitTest, WrongJob) {
  job_["training"]["steps"] = "many";
  Expect(contract::kExitConfiguration, "Configuration", HasSubstr("training.steps"));
}

TEST_F(ExitTest, MoreRanksThanSequences) {
  job_["training"]["globalBatchSize"] = 1;
  job_["training"]["microBatchSize"] = 1;
  Expect(contract::kExitConfiguration, "Configuration", HasSubstr("lobal"), 1, 2);
}

TEST_F(ExitTest, MissingData) {
  job_["data"]["train"][0]["path"] = "gone.txt";
  Expect(contract::kExitData, "Configuration", HasSubstr("gone.txt"));
}

// Where nobody may make a directory, not even root: told once, instead of 50 attempts.
TEST_F(ExitTest, ACheckpointDirectoryThatMayNotBeWritten) {
  const auto leads_to = [this](const char* place) {
    std::filesystem::remove_all(dir_ / "volumes/closed");
    std::filesystem::create_symlink(place, dir_ / "volumes/closed");
  };
  leads_to("/sys/kernel");
  job_["checkpoint"]["volume"] = "closed";
  Expect(contract::kExitConfiguration, "Configuration",
         AllOf(HasSubstr("cannot use the checkpoint directory: "), HasSubstr("mounted writable")));
  job_["checkpoint"]["volume"] = "checkpoints";
  job_["checkpoint"]["exportOnSuccess"] = {{"volume", "closed"}, {"path", "models/a"}};
  Expect(contract::kExitConfiguration, "Configuration",
         AllOf(HasSubstr("checkpoint.exportOnSuccess: "), HasSubstr("mounted writable")), 2);
  job_["checkpoint"].erase("exportOnSuccess");
  job_["checkpoint"]["path"] = std::string(300, 'x');
  Expect(contract::kExitConfiguration, "Configuration", HasSubstr("File name too long"), 3);
}

TEST_F(ExitTest, DataShorterThanOneBatch) {
  WriteText(dir_ / "volumes/corpus/train.txt", std::string(7 * 32 + 1, 'x'));  // 7 sequences for a batch of 8
  Expect(contract::kExitData, "Configuration",
         AllOf(HasSubstr("7 sequences of training.sequenceLength 32"), HasSubstr("training.globalBatchSize of 8")), 1,
         2);
  WriteText(dir_ / "volumes/corpus/train.txt", std::string(32, 'x'));
  Expect(contract::kExitData, "Configuration", HasSubstr("fewer than one sample"), 2);
}

// A token beyond the embedding is named with its file and place, by the rank that needs it and at once.
TEST_F(ExitTest, TokensOutOfRange) {
  std::vector<uint16_t> tokens(8 * 32 * 60 + 1, 7);
  tokens[5000] = 999;
  WriteText(dir_ / "volumes/corpus/train.bin", TokenFile(tokens, 1000));
  job_["data"] = {{"format", "Tokens"}, {"train", {{{"volume", "corpus"}, {"path", "train.bin"}}}}};
  job_["training"]["evaluation"]["everySteps"] = 0;
  Expect(contract::kExitData, "Configuration",
         AllOf(HasSubstr("train.bin has a vocabulary of 1000"), HasSubstr("the model's 256")));
  WriteText(dir_ / "volumes/corpus/train.bin", TokenFile(tokens, 256));  // which is not true
  Expect(contract::kExitData, "Configuration",
         AllOf(HasSubstr("training data of step "), HasSubstr("train.bin: token 5000 (byte 10032) is 999")), 2, 2);
}

// Version 2 of such a file, which knows its tokenizer.
std::string TokenFile(const std::vector<uint16_t>& tokens, uint64_t vocab, uint64_t tokenizer) {
  std::string file = TokenFile(tokens, vocab);
  file[8] = 2;
  return file.insert(32, std::string(reinterpret_cast<const char*>(&tokenizer), 8) + std::string(24, '\0'));
}

void WriteSmallConfig(const std::string& directory, int vocab) {
  std::filesystem::create_directories(directory);
  WriteText(directory + "/config.json", R"({"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 16,
    "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 24, "max_position_embeddings": 64,
    "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false, "vocab_size": )" +
                                            std::to_string(vocab) + "}");
}

// Tokens mean something to the model whose tokenizer made them, and to no other.
TEST_F(ExitTest, TokensOfAnotherTokenizer) {
  const std::vector<uint16_t> tokens(8 * 32 * 60 + 1, 7);
  WriteText(dir_ / "volumes/corpus/train.bin", TokenFile(tokens, 256, 0xabc));
  WriteText(dir_ / "volumes/corpus/valid.bin", TokenFile(tokens, 256, 0xdef));
  job_["data"] = {{"format", "Tokens"},
                  {"train", {{{"volume", "corpus"}, {"path", "train.bin"}}}},
                  {"validation", {{{"volume", "corpus"}, {"path", "valid.bin"}}}}};
  Expect(contract::kExitData, "Configuration",
         AllOf(HasSubstr("valid.bin was made with another tokenizer (0000000000000def) than "),
               HasSubstr("train.bin (0000000000000abc)")));
  job_["data"].erase("validation");
  job_["training"]["evaluation"]["everySteps"] = 0;
  const auto differs_from = [&](const std::string& directory, int attempt) {
    std::filesystem::create_directories(directory);
    WriteText(directory + "/tokenizer.model", "of another");
    Expect(contract::kExitData, "Configuration",
           AllOf(HasSubstr("train.bin was made with another tokenizer (0000000000000abc) than the model's in " +
                           directory),
                 HasSubstr("trainyard data tokenize --tokenizer " + directory)),
           attempt);
    std::filesystem::remove_all(directory);
  };
  differs_from(CheckpointRoot() + "/huggingface", 2);
  const std::string model = dir_ / "volumes/models/small";
  WriteSmallConfig(model, 256);
  job_["model"] = {{"pretrained", {{"volume", "models"}, {"path", "small"}}}};
  differs_from(model, 3);
}

// Bytes are noise to a model that was trained on tokens.
TEST_F(ExitTest, TextForAModelWithATokenizer) {
  const std::string model = dir_ / "volumes/models/small";
  WriteSmallConfig(model, 257);
  WriteText(model + "/tokenizer.model", "");
  job_["model"] = {{"pretrained", {{"volume", "models"}, {"path", "small"}}}};
  Expect(contract::kExitData, "Configuration",
         AllOf(HasSubstr("data.format Text makes each byte a token, and the model has a tokenizer in " + model),
               HasSubstr("trainyard data tokenize")));
}

// The file is mapped: what another program cuts off is gone at the next touch.
TEST_F(ExitTest, DataThatShrinksUnderTheRun) {
  job_["training"]["steps"] = 100'000;
  job_["training"]["evaluation"]["everySteps"] = 0;
  Attempt run = Start(2, 1);
  ASSERT_TRUE(run.AwaitStep(3)) << run.process->Log();
  std::filesystem::resize_file(dir_ / "volumes/corpus/train.txt", 100);
  EXPECT_EQ(run.process->Wait(), contract::kExitData);
  EXPECT_EQ(run.Termination()["class"], "Configuration");
  EXPECT_THAT(run.Termination()["message"].get<std::string>(),
              AllOf(HasSubstr("data file "), HasSubstr("train.txt cannot be read any more")));
}

TEST_F(ExitTest, RanksWithoutDataAreNamed) {
  job_["training"]["steps"] = 5;
  job_["training"]["microBatchSize"] = 4;
  Attempt run = RunToEnd(3, 1);
  EXPECT_THAT(run.process->Log(), HasSubstr("1 of 3 ranks have no data"));
}

TEST_F(ExitTest, OtherMixtureThanTheCheckpoint) {
  WriteText(dir_ / "volumes/corpus/more.txt", std::string(5'000, 'y'));
  job_["data"]["train"] = {{{"volume", "corpus"}, {"path", "train.txt"}, {"weight", 3}},
                           {{"volume", "corpus"}, {"path", "more.txt"}}};
  job_["training"]["steps"] = 10;
  RunToEnd(2, 1);
  job_["training"]["steps"] = 20;
  job_["data"]["train"][1]["weight"] = 2;
  Expect(contract::kExitData, "Configuration", HasSubstr("put files and weights back"), 2);
  job_["data"]["train"][1]["weight"] = 1;
  EXPECT_EQ(RunToEnd(1, 3).StatusFile()["resumedFromStep"], 10);
}

TEST_F(ExitTest, OtherDataThanTheCheckpoint) {
  job_["training"]["steps"] = 10;
  RunToEnd(1, 1);
  job_["training"]["steps"] = 20;
  WriteText(dir_ / "volumes/corpus/train.txt", std::string(50'000, 'x'));
  Expect(contract::kExitData, "Configuration", HasSubstr("fingerprint"), 2);
}

TEST_F(ExitTest, OtherModelThanTheCheckpoint) {
  job_["training"]["steps"] = 10;
  RunToEnd(1, 1);
  job_["model"]["ffnSize"] = 96;
  Expect(contract::kExitCheckpoint, "Configuration", HasSubstr("ffnSize is 80 there and 96 in the job"), 2);
  job_["model"]["ffnSize"] = 80;
  // The same shapes, other mathematics.
  job_["model"]["attentionHeads"] = 2;
  job_["model"]["kvHeads"] = 1;
  Expect(contract::kExitCheckpoint, "Configuration", HasSubstr("attentionHeads"), 3);
  job_["model"]["attentionHeads"] = 4;
  job_["model"]["kvHeads"] = 2;
  job_["model"]["layers"] = 1;  // a layer would be left over
  Expect(contract::kExitCheckpoint, "Configuration", HasSubstr("layers"), 4);
}

// Row 52 of the table of other engines' bugs: optimizer state that is missing must not pass for that of a first step.
TEST_F(ExitTest, OtherOptimizerThanTheCheckpoint_Bug52) {
  const auto sgd = [](double momentum) -> nlohmann::json {
    return {{"name", "SGD"}, {"learningRate", 0.1}, {"weightDecay", 0.0}, {"momentum", momentum}, {"nesterov", false}};
  };
  const nlohmann::json adamw = job_["training"]["optimizer"];
  const auto refused = [](const std::string& was, const std::string& is) {
    return HasSubstr("checkpoint of step 10: it was made with " + was + ", the job trains with " + is + ": ");
  };
  job_["training"]["steps"] = 10;
  RunToEnd(1, 1);
  job_["training"]["steps"] = 20;
  job_["training"]["optimizer"] = sgd(0.9);
  Expect(contract::kExitConfiguration, "Configuration", refused("AdamW", "SGD with momentum"), 2, 2);
  job_["training"]["optimizer"] = sgd(0);
  Expect(contract::kExitConfiguration, "Configuration", refused("AdamW", "SGD without momentum"), 3);

  job_["checkpoint"]["path"] = "plain";
  job_["training"]["steps"] = 10;
  RunToEnd(2, 1);
  job_["training"]["steps"] = 20;
  job_["training"]["optimizer"] = sgd(0.9);
  Expect(contract::kExitConfiguration, "Configuration", refused("SGD without momentum", "SGD with momentum"), 2);
  job_["training"]["optimizer"] = adamw;
  Expect(contract::kExitConfiguration, "Configuration", refused("SGD without momentum", "AdamW"), 3);
  // Other settings of the same optimizer are a wish, not a mistake.
  job_["training"]["optimizer"] = sgd(0);
  job_["training"]["optimizer"]["learningRate"] = 0.05;
  EXPECT_EQ(RunToEnd(1, 4).StatusFile()["resumedFromStep"], 10);
}

TEST_F(ExitTest, MissingCheckpointStep) {
  job_["checkpoint"]["resume"] = "Step";
  job_["checkpoint"]["resumeStep"] = 77;
  Expect(contract::kExitCheckpoint, "Configuration", HasSubstr("77"));
}

TEST_F(ExitTest, DamagedCheckpointGivesWayToAnOlderOneAndIsNamed_Bug24_26) {
  job_["training"]["steps"] = 40;
  job_["checkpoint"]["everySteps"] = 20;
  Attempt undisturbed = RunToEnd(1, 1);
  EXPECT_THAT(undisturbed.process->Log(), HasSubstr("no checkpoint to resume from: training starts at step 0"));
  const auto flip = [this](int64_t step) {
    const std::string shards = CheckpointRoot() + "/" + checkpoint::StepDirectory(step) + "/model";
    for (const auto& entry : std::filesystem::directory_iterator(shards)) {
      if (entry.path().extension() != ".safetensors") continue;
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(0, std::ios::end);
      const auto middle = file.tellg() / 2;
      file.seekg(middle);
      const char byte = static_cast<char>(file.get() ^ 1);
      file.seekp(middle);
      file.put(byte);
    }
  };
  flip(40);
  Attempt again = RunToEnd(2, 2);
  EXPECT_EQ(again.StatusFile()["resumedFromStep"], 20);
  EXPECT_THAT(again.process->Log(), AllOf(HasSubstr("damaged checkpoint"), HasSubstr("model/shard-")));
  // The damaged one is out of the way of retention, and a good one has taken its place.
  EXPECT_TRUE(std::filesystem::exists(CheckpointRoot() + "/abandoned-2/" + checkpoint::StepDirectory(40)));
  EXPECT_TRUE(std::filesystem::exists(CheckpointRoot() + "/" + checkpoint::StepDirectory(40)));
  for (const int64_t step : {20, 40}) flip(step);
  Expect(contract::kExitCheckpoint, "Configuration", HasSubstr("checkpoint"), 3);
}

TEST_F(ExitTest, NewerAttemptOwnsTheDirectory) {
  job_["training"]["steps"] = 10;
  RunToEnd(1, 5);
  Expect(contract::kExitFenced, "Configuration", HasSubstr("belongs to attempt 5"), 4);
}

TEST_F(ExitTest, LossThatIsNotFinite) {
  // Weight decay times the rate is 100: the weights grow by that each step.
  job_["training"]["optimizer"]["learningRate"] = 1000;
  job_["training"]["schedule"] = {{"type", "Constant"}, {"warmupSteps", 0}, {"minLearningRateRatio", 0.1}};
  job_["training"]["gradientClipNorm"] = 0;
  Expect(contract::kExitNonFinite, "NonFinite", AllOf(HasSubstr("step "), HasSubstr("not finite")), 1, 2);
}

TEST_F(ExitTest, CudaIsNeverReplacedInSilence) {
  job_["training"]["device"] = "CUDA";
  Expect(contract::kExitConfiguration, "Configuration", HasSubstr("CUDA"));
}

TEST_F(ExitTest, MasterPortInUse) {
  auto other = http::Server::Start({}, [](const http::Request&) { return http::Response(); });
  ASSERT_TRUE(other);
  const std::string port = std::to_string((*other)->port());
  Attempt run = Start(2, 1, {{"MASTER_PORT", port}});
  EXPECT_EQ(run.process->Wait(), contract::kExitPortInUse) << run.process->Log();
  EXPECT_THAT(run.Termination()["message"].get<std::string>(), HasSubstr(port));
}

TEST_F(ExitTest, StoppedWhileWaitingForPeers) {
  Attempt run = Start(1, 1, {{"NNODES", "2"}, {"WORLD_SIZE", "2"}});  // the other node never comes
  ASSERT_TRUE(Await([&] { return run.StatusFile().is_object(); })) << run.process->Log();
  run.process->Signal(SIGTERM);
  EXPECT_EQ(run.process->Wait(), contract::kExitStopped) << run.process->Log();
}

TEST_F(ExitTest, FullDisk) {
  const TinyVolume volume(dir_ / "volumes/checkpoints");
  if (!volume.mounted()) GTEST_SKIP() << "needs the right to mount a small file system: " << std::strerror(errno);
  job_["checkpoint"]["keepLast"] = 9;
  Expect(contract::kExitStorage, "Storage", AllOf(HasSubstr("not written"), HasSubstr("No space left")), 1, 2);
  // What was committed before is whole, what was not is no checkpoint.
  const auto found = checkpoint::List(CheckpointRoot(), checkpoint::Check::kEverything);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_FALSE(found->empty()) << "the volume was meant to hold at least one";
  for (const auto& info : *found) EXPECT_TRUE(info.valid) << info.problem;
}

}  // namespace
}  // namespace trainyard::loop
