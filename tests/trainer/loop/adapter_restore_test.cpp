// Jobs that train an adapter: their checkpoints hold that and say which model it belongs to, and go on at every number
// of ranks with the base from model.pretrained.
#include "tests/trainer/loop/checkpoint_tensors.h"
#include "tests/trainer/loop/thread_ranks.h"
#include "trainer/checkpoint/base_hash.h"
#include "trainer/checkpoint/export.h"
#include "trainer/checkpoint/foreign_model.h"
#include "trainer/checkpoint/huggingface.h"
#include "trainer/checkpoint/verify.h"
#include "trainer/loop/live_state.h"
#include "trainer/loop/restore.h"
#include "trainer/loop/state_hash.h"
#include "trainer/loop/train_step.h"
#include "trainer/quant/nf4_tensor.h"

namespace trainyard::loop {
namespace {

using checkpoint::AdapterDescription;
using checkpoint::ModelDescription;
using ::testing::AllOf;
using ::testing::HasSubstr;

class AdapterRestoreTest : public ThreadRanksTest {
 protected:
  AdapterRestoreTest() {
    job_["training"]["sequenceLength"] = 16;
    job_["training"]["precision"] = "BF16";  // of the frozen weights, too
    const nlohmann::json checkpoint = job_["checkpoint"];
    job_["checkpoint"]["path"] = "source";
    EXPECT_EQ(OnRanks(1,
                      [](Session& s) -> Outcome<void> {
                        if (auto done = Restore(s); !done) return done;
                        return Save(s);
                      }),
              "");
    job_["checkpoint"] = checkpoint;
    job_["model"] = {{"pretrained", {{"volume", "models"}, {"path", "small"}}}};
    MakeSource("BF16");
  }
  // The initial weights of the job of the other tests, as a published model.
  void MakeSource(const std::string& dtype) {
    std::filesystem::remove_all(source_);
    auto reader = checkpoint::Reader::Open(dir_ / "volumes/checkpoints/source/step-00000000");
    ASSERT_TRUE(reader) << reader.error().message;
    model_ = *checkpoint::DescribeModel(*reader);
    const auto exported = checkpoint::ExportHuggingFace(*reader, source_, {.dtype = dtype, .shard_bytes = 9000});
    ASSERT_TRUE(exported) << exported.error().message;
  }

  // A job that trains the adapter as it is now.
  std::string Adapted(int world, const std::function<Outcome<void>(Session&)>& body) {
    job_["model"]["adapter"] = {{"type", "LoRA"},
                                {"rank", adapter_.rank},
                                {"alpha", adapter_.alpha},
                                {"dropout", adapter_.dropout},
                                {"targets", adapter_.targets},
                                {"quantizeBase", adapter_.nf4 ? "NF4" : "None"}};
    std::string failure = OnRanks(world, body);
    job_["model"].erase("adapter");
    return failure;
  }
  std::string Restored() {
    return Adapted(2, [](Session& s) { return Restore(s); });
  }

  // Frozen elements of this rank that are not what the source makes of them, and how many were looked at.
  std::pair<int64_t, int64_t> WrongInBase(Session& s) {
    std::pair<int64_t, int64_t> wrong{0, 0};
    auto source = checkpoint::ForeignModel::Open(source_, s.description);
    for (const engine::ShardView& shard : s.engine->Shards()) {
      const auto& spec = s.engine->unit(shard.unit).params[static_cast<size_t>(shard.index)];
      if (!spec.frozen || shard.rows.size() == 0) continue;
      std::vector<int64_t> offset(shard.global_shape.size(), 0), shape = shard.global_shape;
      offset[0] = shard.rows.lo, shape[0] = shard.rows.size();
      at::Tensor wanted = at::empty(shape, at::kFloat);
      if (!source->Read({{shard.name, "F32", shard.global_shape, offset, shape, wanted.mutable_data_ptr()}})) {
        return {-1, 0};
      }
      wrong.second += wanted.numel();
      wanted = spec.nf4 ? quant::Nf4Quantise(wanted) : wanted.to(at::kBFloat16);
      wrong.first += at::ne(wanted, shard.master).sum().item<int64_t>();
    }
    return wrong;
  }

  ModelDescription model_;
  AdapterDescription adapter_{.rank = 5, .alpha = 10, .dropout = 0.1, .targets = {"down_proj", "q_proj"}};
  const std::string source_ = dir_ / "volumes/models/small";
};

TEST_F(AdapterRestoreTest, CheckpointsHoldTheAdapterAndGoOnAtEveryNumberOfRanks) {
  std::map<int, std::string> hashes;
  std::map<int, Tensors> saved;
  std::atomic<int64_t> looked_at = 0;
  const int64_t parameters = [&] {
    int64_t count = 0;
    for (const auto& t : checkpoint::TensorsOf(model_)) count += *checkpoint::ElementCount(t.global_shape);
    return count;
  }();
  const auto base_is_right = [&](Session& s) -> Outcome<void> {
    const auto [wrong, all] = WrongInBase(s);
    if (wrong != 0) return Fails(contract::kExitInternal, c10::str(wrong, " elements of the base are wrong"));
    looked_at += all;
    return {};
  };
  for (const int world : {1, 3}) {
    adapter_.nf4 = world == 3;
    job_["parallelism"]["strategy"] = world == 1 ? "DDP" : "FSDP";
    job_["checkpoint"]["path"] = "w" + std::to_string(world);
    looked_at = 0;
    ASSERT_EQ(Adapted(world,
                      [&](Session& s) -> Outcome<void> {
                        if (auto done = Restore(s); !done) return done;
                        if (auto right = base_is_right(s); !right) return right;
                        EXPECT_EQ(s.report->status().restored->bytes_read, s.base->reference.bytes);
                        for (int64_t step = 1; step <= 3; ++step) {
                          if (auto done = TrainStep(s, step); !done) return Fails(done.error());
                        }
                        if (auto right = base_is_right(s); !right) return right;
                        const std::string hash = StateHash(s);
                        if (s.env.rank == 0) hashes[world] = hash;
                        return Save(s);
                      }),
              "");
    EXPECT_EQ(looked_at, 2 * parameters) << "before and after";
    const std::string root = dir_ / ("volumes/checkpoints/w" + std::to_string(world));
    saved[world] = ReadTensors(root, 3);
    // A and B of two matrices in two layers, each with both moments.
    EXPECT_EQ(saved[world].size(), 2u * 2 * 2 * 3);
    const std::string& b = saved[world]["model/model.layers.1.mlp.down_proj.lora_B.weight"];
    EXPECT_NE(b.find_first_not_of('\0'), std::string::npos) << "it is trained";
    EXPECT_TRUE(checkpoint::Verify(root + "/step-00000003")->ok());
    auto reader = checkpoint::Reader::Open(root + "/step-00000003");
    const auto state = checkpoint::DescribeAdapter(*reader);
    ASSERT_TRUE(state) << state.error().message;
    EXPECT_EQ(state->adapter, adapter_);
    auto source = checkpoint::ForeignModel::Open(source_, model_);
    EXPECT_EQ(state->base->hash, checkpoint::HashBase(*source, model_, source_)->hash);
  }
  for (const int from : {1, 3}) {
    for (const int to : {1, 2, 4}) {
      for (const std::string strategy : {"FSDP", "DDP", "ZeRO2"}) {
        SCOPED_TRACE("from " + std::to_string(from) + " to " + std::to_string(to) + " " + strategy);
        job_["parallelism"]["strategy"] = strategy;
        job_["checkpoint"]["path"] = "w" + std::to_string(from);
        adapter_.nf4 = from == 3;
        looked_at = 0;
        EXPECT_EQ(Adapted(to,
                          [&](Session& s) -> Outcome<void> {
                            if (auto done = Restore(s); !done) return done;
                            EXPECT_EQ(s.progress.step, 3);
                            EXPECT_EQ(StateHash(s), hashes[from]);
                            return base_is_right(s);
                          }),
                  "");
        EXPECT_EQ(looked_at, parameters);
      }
    }
  }
}

TEST_F(AdapterRestoreTest, OneLineForWhatDoesNotBelongTogether) {
  ASSERT_EQ(Adapted(2,
                    [&](Session& s) -> Outcome<void> {
                      if (auto done = Restore(s); !done) return done;
                      s.progress.step = 3;
                      return Save(s);
                    }),
            "");
  EXPECT_EQ(Restored(), "");
  const AdapterDescription right = adapter_;
  adapter_.rank = 4;
  EXPECT_THAT(Restored(), HasSubstr("it is of another adapter: rank is 5 there and 4 in the job; set it back"));
  adapter_ = right;
  adapter_.targets = {"q_proj"};
  EXPECT_THAT(Restored(), HasSubstr(R"(targets is ["down_proj","q_proj"] there and ["q_proj"] in the job)"));
  adapter_ = right;
  adapter_.nf4 = true;
  EXPECT_THAT(Restored(), HasSubstr(R"(quantizeBase is "None" there and "NF4" in the job)"));
  // The weights alone may be trained on in another way.
  job_["checkpoint"]["path"] = "other";
  job_["checkpoint"]["resumeFrom"] = {{"volume", "checkpoints"}, {"path", "tiny"}, {"weightsOnly", true}};
  adapter_.dropout = 0;
  EXPECT_EQ(Restored(), "");
  adapter_.alpha = 11;
  std::filesystem::remove_all(dir_ / "volumes/checkpoints/other");
  EXPECT_THAT(Restored(), HasSubstr("alpha is 10.0 there and 11.0 in the job"));
  job_["checkpoint"].erase("resumeFrom");
  job_["checkpoint"]["path"] = "tiny";
  adapter_ = right;
  // A job of the whole model in the same directory.
  EXPECT_THAT(OnRanks(2, [](Session& s) { return Restore(s); }),
              HasSubstr("it holds an adapter, and the job trains a whole model: set model.adapter"));
  // The same model, trained a little further or stored in other bytes, is another base.
  MakeSource("F32");
  EXPECT_THAT(Restored(),
              AllOf(HasSubstr("the adapter belongs to another base: it was trained on "), HasSubstr(", in " + source_),
                    HasSubstr("; put model.pretrained back or use another checkpoint path")));
  MakeSource("BF16");
  EXPECT_EQ(Restored(), "");
}

TEST_F(AdapterRestoreTest, AWholeModelIsNoAdapter) {
  ASSERT_EQ(OnRanks(2,
                    [&](Session& s) -> Outcome<void> {
                      if (auto done = Restore(s); !done) return done;
                      return Save(s);
                    }),
            "");
  EXPECT_THAT(Restored(), HasSubstr("it holds a whole model, and the job trains an adapter"));
}

}  // namespace
}  // namespace trainyard::loop
