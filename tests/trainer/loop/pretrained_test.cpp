// A job that starts from a Hugging Face directory: every family at 1, 2 and 3 ranks, each of which reads its own rows.
#include <fstream>

#include "tests/trainer/checkpoint/model_sample.h"
#include "tests/trainer/loop/thread_ranks.h"
#include "trainer/checkpoint/export.h"
#include "trainer/checkpoint/foreign_model.h"
#include "trainer/loop/live_state.h"
#include "trainer/loop/restore.h"

namespace trainyard::loop {
namespace {

using checkpoint::ModelDescription;
using ::testing::HasSubstr;

class PretrainedTest : public ThreadRanksTest {
 protected:
  PretrainedTest() {
    job_["training"]["sequenceLength"] = 16;
    job_["model"] = {{"pretrained", {{"volume", "models"}, {"path", "small"}}}};
  }
  // A directory with this model, of 256 tokens, in BF16, and a tokenizer.
  void MakeSource(ModelDescription model) {
    const std::string volume = dir_ / "volumes/models";
    std::filesystem::remove_all(volume);
    std::filesystem::remove_all(dir_ / "sample");
    std::filesystem::remove_all(CheckpointRoot());
    std::filesystem::create_directories(volume);
    model.vocab = 256;
    auto reader = checkpoint::Reader::Open(checkpoint::SaveModel(dir_ / "sample", model, 5, 2));
    ASSERT_TRUE(reader);
    const auto exported = checkpoint::ExportHuggingFace(*reader, source_, {.dtype = "BF16", .shard_bytes = 9000});
    ASSERT_TRUE(exported) << exported.error().message;
    WriteText(source_ + "/tokenizer.json", "{}");
    bytes_ = 0;
    for (const auto& tensor : checkpoint::TensorsOf(model))
      bytes_ += 2 * *checkpoint::ElementCount(tensor.global_shape);
  }
  // Elements of this rank's weights that are not those of the source.
  static int64_t Wrong(Session& s, const std::string& source) {
    auto model = checkpoint::ForeignModel::Open(source, s.description);
    if (!model) return -1;
    int64_t wrong = 0;
    for (const LiveTensor& tensor : LiveStateOf(*s.engine).model) {
      const at::Tensor wanted = at::empty(tensor.slice.shape, at::kFloat);
      checkpoint::TensorSlice slice = tensor.slice;
      slice.data = wanted.mutable_data_ptr();
      if (!model->Read({slice})) return -1;
      wrong += at::ne(wanted, tensor.live).sum().item<int64_t>();
    }
    return wrong;
  }

  const std::string source_ = dir_ / "volumes/models/small";
  int64_t bytes_ = 0;  // of all weights in the source
};

TEST_F(PretrainedTest, EveryRankHasItsRowsAndReadNoOthers) {
  ModelDescription windowed = checkpoint::SmallMistral();
  windowed.window = 4, windowed.windowed_layers = {0, 1};
  for (const ModelDescription& model : {checkpoint::SmallLlama(), windowed, checkpoint::SmallQwen2(),
                                        checkpoint::SmallQwen3(), checkpoint::SmallGpt2()}) {
    for (const std::string strategy : {"DDP", "FSDP"}) {
      for (const int world : {1, 2, 3}) {
        SCOPED_TRACE(checkpoint::FamilyName(model.family) + " " + strategy + " at " + std::to_string(world));
        MakeSource(model);
        job_["parallelism"]["strategy"] = strategy;
        std::vector<int64_t> wrong(world, -1);
        std::vector<observe::RestoredStatus> restored(world);
        EXPECT_EQ(OnRanks(world,
                          [&](Session& s) -> Outcome<void> {
                            if (auto done = Restore(s); !done) return done;
                            wrong[s.env.rank] = Wrong(s, source_);
                            restored[s.env.rank] = *s.report->status().restored;
                            EXPECT_EQ(s.progress.step, 0);
                            return {};
                          }),
                  "");
        EXPECT_EQ(wrong, std::vector<int64_t>(world, 0));
        // Replicas read a share each and tell each other.
        EXPECT_EQ(restored[0].bytes_read, bytes_) << "all ranks together";
        // Rows are cut into ceil(R / W), so the first rank has at most a row of each tensor more than a fair share.
        EXPECT_GE(restored[0].most_bytes_read, bytes_ / world);
        if (world > 1) {
          EXPECT_LT(restored[0].most_bytes_read, bytes_ * 6 / 10);
        }
        EXPECT_TRUE(std::filesystem::exists(CheckpointRoot() + "/huggingface/tokenizer.json"));
      }
    }
  }
}

TEST_F(PretrainedTest, OneLineForEachThingThatDoesNotFit) {
  MakeSource(checkpoint::SmallQwen2());
  const auto start = [&] { return OnRanks(2, [](Session& s) { return Restore(s); }); };
  const std::string at = "model.pretrained: " + source_ + "/config.json: ";
  const nlohmann::json pretrained = job_["model"]["pretrained"];
  job_["model"] = {{"pretrained", pretrained}, {"family", "Qwen2"}, {"layers", 2},   {"hiddenSize", 16},
                   {"attentionHeads", 4},      {"kvHeads", 2},      {"ffnSize", 24}, {"vocabSize", 256},
                   {"tiedEmbeddings", false},  {"maxPositions", 32}};
  EXPECT_EQ(start(), "");
  const nlohmann::json right = job_["model"];
  const auto with = [&](const char* key, const nlohmann::json& value) {
    job_["model"] = right;
    job_["model"][key] = value;
    return start();
  };
  EXPECT_EQ(with("ffnSize", 32), at + "model.architecture.ffnSize: the job says 32, config.json says 24");
  EXPECT_EQ(with("family", "Llama"), at + "model.architecture.family: the job says Llama, config.json says Qwen2");
  EXPECT_EQ(with("tiedEmbeddings", true), at + "model.architecture.tiedEmbeddings: the job says 1, config.json says 0");
  EXPECT_EQ(with("headSize", 8), at + "model.architecture.headSize: the job says 8, config.json says 4");
  EXPECT_EQ(with("maxPositions", 64),
            at + "model.architecture.maxPositions: the job says 64, config.json says at most 32");
  EXPECT_EQ(with("maxPositions", 16), "") << "fewer are enough";
  job_["model"] = {{"pretrained", pretrained}};
  job_["training"]["sequenceLength"] = 33;
  EXPECT_EQ(start(), at + "training.sequenceLength: 33 is more than the 32 positions of the model");
  job_["training"]["sequenceLength"] = 16;
  job_["data"]["documentSeparator"] = 256;
  EXPECT_EQ(start(), at + "data.documentSeparator: 256 is not one of the 256 tokens of the model's vocabulary");
  job_["data"].erase("documentSeparator");
  std::filesystem::remove_all(CheckpointRoot());
  std::string first;
  for (const auto& entry : std::filesystem::directory_iterator(source_)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("model-00001-of-")) first = name;
  }
  ASSERT_NE(first, "");
  std::filesystem::remove(source_ + "/" + first);
  const std::string missing = start();
  EXPECT_THAT(missing, HasSubstr("model.pretrained: "));
  EXPECT_THAT(missing, HasSubstr(source_ + "/" + first));
  std::filesystem::remove_all(source_);
  EXPECT_EQ(start(), "model.pretrained: " + source_ + "/config.json does not exist");
}

}  // namespace
}  // namespace trainyard::loop
