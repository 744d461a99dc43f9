// Saved at W ranks, loaded at W' and saved again: every tensor, optimizer state included, has the same bytes when it is
// gathered, and the state in memory has the same hash. All pairs of 1, 2, 3, 4, 5, 8, ranks as threads, saved and
// loaded in every stage and with replicas, with parameters of fewer rows than ranks.
#include <atomic>
#include <functional>
#include <thread>

#include "tests/trainer/loop/checkpoint_tensors.h"
#include "tests/trainer/loop/thread_ranks.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/loop/live_state.h"
#include "trainer/loop/restore.h"
#include "trainer/loop/save.h"
#include "trainer/loop/state.h"
#include "trainer/loop/state_hash.h"
#include "trainer/loop/train_step.h"

namespace trainyard::loop {
namespace {

constexpr int64_t kSteps = 3;
constexpr size_t kParameters = 20;  // two blocks of nine, embedding and final norm
constexpr size_t kVectors = 5;      // of them, the norms

class ReshardTest : public ThreadRanksTest {
 protected:
  ReshardTest() {
    auto& model = job_["model"];
    model["hiddenSize"] = 12;
    model["attentionHeads"] = 2;
    model["kvHeads"] = 1;  // 6 rows
    model["ffnSize"] = 20;
    job_["training"]["microBatchSize"] = 1;
  }

  Tensors ReadAll(const std::string& path_in_volume) const {
    return ReadTensors(dir_ / ("volumes/checkpoints/" + path_in_volume), kSteps);
  }

  // Trains and saves at each of `worlds`, loads at each other and saves again. `tensors`: how many there are.
  void ExpectByteEqualForAllPairs(const std::vector<int>& worlds, size_t tensors) {
    std::map<int, Tensors> saved;
    std::map<int, std::string> hashes;  // of the state in memory when it was saved
    for (const int world : worlds) {
      const std::map<int, std::string> strategies = {{2, "HSDP"}, {3, "ZeRO1"}, {4, "DDP"}, {5, "ZeRO2"}, {8, "HSDP"}};
      const auto strategy = strategies.find(world);
      job_["parallelism"] = {{"strategy", strategy == strategies.end() ? "FSDP" : strategy->second}};
      if (job_["parallelism"]["strategy"] == "HSDP") job_["parallelism"]["shardSize"] = world / 2;
      job_["checkpoint"]["path"] = "w" + std::to_string(world);
      const std::string failure = OnRanks(world, [&](Session& s) -> Outcome<void> {
        if (auto restored = Restore(s); !restored) return restored;
        const std::string before = StateHash(s);
        for (int64_t step = 1; step <= kSteps; ++step) {
          if (auto done = TrainStep(s, step); !done) return Fails(done.error());
        }
        const std::string hash = StateHash(s);
        if (hash == before) return Fails(contract::kExitInternal, "three steps change the state, and not its hash");
        if (s.env.rank == 0) hashes[world] = hash;
        return Save(s);
      });
      ASSERT_EQ(failure, "") << world;
      saved[world] = ReadAll("w" + std::to_string(world));
      ASSERT_EQ(saved[world].size(), saved[1].size());
      for (const auto& [name, bytes] : saved[world]) {
        ASSERT_NE(bytes.find_first_not_of('\0'), std::string::npos) << name << " is all zeros: nothing is shown";
      }
    }
    ASSERT_EQ(saved[1].size(), tensors);
    for (const int from : worlds) {
      for (const int to : worlds) {
        for (const std::string strategy : {"FSDP", "DDP", "ZeRO1", "ZeRO2", "HSDP"}) {
          if (strategy == "HSDP" && to % 2 != 0) continue;
          SCOPED_TRACE("from " + std::to_string(from) + " to " + std::to_string(to) + " ranks, " + strategy);
          job_["parallelism"] = {{"strategy", strategy}};
          if (strategy == "HSDP") job_["parallelism"]["shardSize"] = 2;
          job_["checkpoint"]["path"] = "w" + std::to_string(from);
          const std::string copy = "w" + std::to_string(from) + "-" + std::to_string(to) + strategy;
          const std::string failure = OnRanks(to, [&](Session& s) -> Outcome<void> {
            if (auto restored = Restore(s); !restored) return restored;
            if (s.progress.step != kSteps) return Fails(contract::kExitInternal, "resumed from another step");
            const std::string hash = StateHash(s);
            if (hash != hashes.at(from)) return Fails(contract::kExitInternal, "loaded " + hash);
            s.job.checkpoint->directory.path = copy;
            s.progress.saved_step.reset();
            if (s.env.rank == 0) {
              const auto taken = checkpoint::TakeOver(s.CheckpointRoot(), {s.env.uid, s.env.attempt, s.env.round});
              if (!taken) return Fails(contract::kExitInternal, taken.error().message);
            }
            s.world->Barrier();
            return Save(s);
          });
          ASSERT_EQ(failure, "");
          const Tensors again = ReadAll(copy);
          ASSERT_EQ(again.size(), saved[from].size());
          for (const auto& [name, bytes] : saved[from]) EXPECT_TRUE(again.at(name) == bytes) << name;
        }
      }
    }
  }
};

TEST_F(ReshardTest, EveryTensorIsByteEqualForAllPairs_Bug1_7_11_14) {
  ExpectByteEqualForAllPairs({1, 2, 3, 4, 5, 8}, 3 * kParameters);
}

TEST_F(ReshardTest, SoIsTheStateOfOtherOptimizers) {
  job_["training"]["optimizer"] = {
      {"name", "SGD"}, {"learningRate", 0.1}, {"weightDecay", 0.001}, {"momentum", 0.9}, {"nesterov", true}};
  ExpectByteEqualForAllPairs({1, 3, 4}, 2 * kParameters);
  std::filesystem::remove_all(dir_ / "volumes/checkpoints");
  job_["training"]["optimizer"]["momentum"] = 0;
  job_["training"]["optimizer"]["nesterov"] = false;
  ExpectByteEqualForAllPairs({1, 3}, kParameters);
}

// Packed rows, and statistics of columns that every owner has whole.
TEST_F(ReshardTest, SoIsStateInFewBytes) {
  job_["model"]["hiddenSize"] = 16;  // the embedding is large enough for 8 bits
  job_["training"]["optimizer"]["name"] = "AdamW8bit";
  ExpectByteEqualForAllPairs({1, 3, 4}, 3 * kParameters);
  std::filesystem::remove_all(dir_ / "volumes/checkpoints");
  job_["training"]["optimizer"] = {{"name", "Adafactor"}, {"learningRate", 0.01}, {"weightDecay", 0.1}};
  ExpectByteEqualForAllPairs({1, 3, 4}, 3 * kParameters - kVectors);
}

// Checkpoints of before there was another optimizer do not say which one made them.
TEST_F(ReshardTest, AStateThatNamesNoOptimizerIsOfAdamW) {
  const auto parse = [this] {
    return OnRanks(1, [](Session& s) -> Outcome<void> {
      auto state = nlohmann::json::parse(TrainStateJson(s));
      state.erase("optimizer");
      auto parsed = ParseTrainState(s, state);
      if (!parsed) return Fails(parsed.error());
      return {};
    });
  };
  EXPECT_EQ(parse(), "");
  job_["training"]["optimizer"] = {
      {"name", "SGD"}, {"learningRate", 0.1}, {"weightDecay", 0.0}, {"momentum", 0.0}, {"nesterov", false}};
  EXPECT_THAT(parse(), ::testing::StartsWith("it was made with AdamW, the job trains with SGD without momentum: "));
}

// Where the data stands, and everything else that resuming needs, is never guessed.
TEST_F(ReshardTest, AStateThatLacksAnythingIsAnError_Bug3) {
  for (const std::string key : {"version", "step", "consumedSequences", "consumedTokens", "seed", "sequenceLength",
                                "dataFingerprint", "model"}) {
    const std::string failure = OnRanks(1, [&](Session& s) -> Outcome<void> {
      auto state = nlohmann::json::parse(TrainStateJson(s));
      EXPECT_EQ(state.erase(key), 1u) << key;
      auto parsed = ParseTrainState(s, state);
      if (!parsed) return Fails(parsed.error());
      return {};
    });
    EXPECT_THAT(failure, ::testing::StartsWith("train_state.json is not one of ours: ")) << key;
    EXPECT_THAT(failure, ::testing::HasSubstr(key));
  }
}

TEST_F(ReshardTest, WeightsAloneSayHowTheyAreTaken) {
  const std::string failure = OnRanks(1, [&](Session& s) -> Outcome<void> {
    auto parsed = ParseTrainState(s, {{"version", 1}, {"weightsOnly", true}, {"step", 0}});
    if (!parsed) return Fails(parsed.error());
    return {};
  });
  EXPECT_THAT(failure, ::testing::HasSubstr("start from it with checkpoint.resumeFrom and weightsOnly"));
}

TEST_F(ReshardTest, CountsThatAreNoneAreAnError) {
  for (const std::string key : {"step", "consumedSequences", "consumedTokens", "skippedSteps", "sequenceLength"}) {
    for (const char* value : {"-1", "1e300", "0.5", "4611686018427387904", "\"7\""}) {
      const std::string failure = OnRanks(1, [&](Session& s) -> Outcome<void> {
        auto state = nlohmann::json::parse(TrainStateJson(s));
        state[key] = nlohmann::json::parse(value);
        auto parsed = ParseTrainState(s, state);
        if (!parsed) return Fails(parsed.error());
        return {};
      });
      EXPECT_THAT(failure, ::testing::StartsWith("train_state.json is not one of ours: ")) << key << " " << value;
      EXPECT_THAT(failure, ::testing::HasSubstr(key)) << value;
    }
  }
}

// What ranks tell each other about a save is what they wrote, never the state itself; and no rank reads what another
// one owns, at no stage.
TEST_F(ReshardTest, StateIsNeitherGatheredForASaveNorReadTwice_Bug16_19_31) {
  job_["model"]["hiddenSize"] = 128;
  job_["model"]["ffnSize"] = 384;
  for (const std::string strategy : {"DDP", "FSDP"}) {
    SCOPED_TRACE(strategy);
    job_["parallelism"]["strategy"] = strategy;
    job_["checkpoint"]["path"] = strategy;
    std::atomic<int64_t> state = 0, sent = 0, wanted = 0;
    const std::string failure = OnRanks(3, [&](Session& s) -> Outcome<void> {
      if (auto restored = Restore(s); !restored) return restored;
      s.progress.step = kSteps;
      const LiveState live = LiveStateOf(*s.engine);
      for (const auto* group : {&live.model, &live.optim}) {
        for (const LiveTensor& tensor : *group) wanted += tensor.bytes;
      }
      state = 12 * s.engine->parameter_count();
      s.saver = std::make_unique<Saver>(s);
      const int64_t before = s.world->payload_bytes();
      auto saved = Save(s);
      sent += s.world->payload_bytes() - before + s.saver->payload_bytes();
      return saved;
    });
    ASSERT_EQ(failure, "");
    EXPECT_EQ(wanted, state) << "every byte is one rank's";
    EXPECT_LT(sent, state / 10);
  }
}

// The disk may be slower than the deadline of the collectives that training makes.
TEST_F(ReshardTest, ASlowSaveIsNoLostPeer_Bug53) {
  const auto deadline = std::chrono::milliseconds(50);
  const std::string failure = OnRanks(2, [&](Session& s) -> Outcome<void> {
    s.world->set_default_deadline(deadline);
    if (auto restored = Restore(s); !restored) return restored;
    s.progress.step = kSteps;
    // Rank 1 comes late by several deadlines, as from a disk that is busy: time itself is what is tested.
    if (s.env.rank == 1) std::this_thread::sleep_for(6 * deadline);
    return Save(s);
  });
  EXPECT_EQ(failure, "");
}

}  // namespace
}  // namespace trainyard::loop
