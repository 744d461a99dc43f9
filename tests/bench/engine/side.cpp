#include "tests/bench/engine/side.h"

#include <cmath>
#include <fstream>
#include <stdexcept>

#include "trainer/dist/gloo_comm.h"
#include "trainer/engine/init.h"
#include "trainer/optim/clip.h"

namespace trainyard::bench {
namespace {

constexpr double kClipNorm = 1.0;

at::ScalarType ComputeType(const Setting& s) { return s.bf16 ? at::kBFloat16 : at::kFloat; }

}  // namespace

Setting ReadSetting(const nlohmann::json& json) {
  const nlohmann::json& m = json.at("model");
  Setting s;
  s.model = {m.at("layers"), m.at("hidden"), m.at("heads"),    m.at("kvHeads"),
             m.at("ffn"),    m.at("vocab"),  json.at("length")};
  s.stage = json.at("stage");
  s.bf16 = json.at("precision") == "bf16";
  s.checkpointing = json.at("checkpointing");
  s.exact = json.value("exact", false);
  s.bucket_bytes = json.value("bucketBytes", int64_t{0});
  s.ranks = json.at("ranks"), s.rank = json.at("rank"), s.port = json.at("port");
  s.batch = json.at("batch"), s.length = json.at("length");
  s.learning_rate = json.at("learningRate");
  return s;
}

at::Tensor Tokens(const Setting& s, int64_t index, int rank) {
  const int64_t count = s.batch * (s.length + 1);
  at::Tensor tokens = at::empty({s.batch, s.length + 1}, at::kLong);
  auto* out = tokens.mutable_data_ptr<int64_t>();
  const uint64_t key = engine::StreamKey(kSeed, "tokens");
  for (int64_t i = 0; i < count; ++i) {
    const auto random =
        engine::Philox({static_cast<uint32_t>(i), static_cast<uint32_t>(index), static_cast<uint32_t>(rank), 0},
                       {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
    const double u = static_cast<double>(random[0]) * 0x1p-32;
    out[i] = static_cast<int64_t>(static_cast<double>(s.model.vocab) * u * u * u);
  }
  return tokens;
}

void Export(const Setting& s, const std::string& file) {
  nlohmann::json header;
  int64_t offset = 0;
  const auto add = [&](const std::string& name, const char* type, const std::vector<int64_t>& shape, int64_t bytes) {
    header[name] = {{"dtype", type}, {"shape", shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  };
  const auto units = model::LlamaUnits(s.model);
  for (const auto& unit : units) {
    for (const auto& p : unit.params) add(p.name, "F32", p.shape, p.numel() * 4);
  }
  add("tokens", "I64", {kBatches, s.ranks, s.batch, s.length + 1}, kBatches * s.ranks * s.batch * (s.length + 1) * 8);
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t size = text.size();
  std::ofstream out(file, std::ios::binary);
  const auto write = [&](const void* data, int64_t bytes) { out.write(static_cast<const char*>(data), bytes); };
  write(&size, 8);
  write(text.data(), static_cast<int64_t>(size));
  std::vector<float> values;
  for (const auto& unit : units) {
    for (const auto& p : unit.params) {
      values.resize(static_cast<size_t>(p.numel()));
      engine::InitElements(p, kSeed, 0, p.numel(), values.data());
      write(values.data(), p.numel() * 4);
    }
  }
  for (int64_t b = 0; b < kBatches; ++b) {
    for (int rank = 0; rank < s.ranks; ++rank) {
      const at::Tensor tokens = Tokens(s, b, rank);
      write(tokens.const_data_ptr(), static_cast<int64_t>(tokens.nbytes()));
    }
  }
  out.flush();
  if (!out) throw std::runtime_error("cannot write " + file);
}

Side::Side(const Setting& setting) : setting_(setting) {
  auto device = device::Open("CPU");
  if (!device) throw std::runtime_error(device.error().message);
  device_ = std::move(*device);
  auto comm = dist::ConnectGloo({.host = "127.0.0.1",
                                 .port = setting.port,
                                 .prefix = "bench",
                                 .rank = setting.rank,
                                 .world = setting.ranks,
                                 .bind_host = "127.0.0.1",
                                 .timeout = std::chrono::minutes(2)});
  if (!comm) throw std::runtime_error(comm.error().message);
  comm_ = std::move(*comm);
  engine::EngineOptions options;
  options.stage = setting.stage;
  options.compute_dtype = ComputeType(setting);
  options.seed = kSeed;
  if (setting.bucket_bytes > 0) options.bucket_bytes = setting.bucket_bytes;
  options.exact_micro_batches = setting.exact ? setting.ranks : 0;
  engine_ = std::make_unique<engine::Engine>(*device_, *comm_, model::LlamaUnits(setting.model), options);
  llama_ = std::make_unique<model::Llama>(
      setting.model, *engine_,
      setting.checkpointing ? model::ActivationCheckpointing::kFull : model::ActivationCheckpointing::kNone);
  for (int64_t i = 0; i < kBatches; ++i) batches_.push_back(Tokens(setting, i, setting.rank));
}

Side::~Side() { (void)comm_->Close(); }

double Side::Step() {
  const at::Tensor& batch = batches_[static_cast<size_t>(step_ % kBatches)];
  const auto tokens = static_cast<double>(setting_.batch * setting_.length);
  const double scale = 1.0 / (tokens * setting_.ranks);
  double sum = 0;
  do {  // twice where exact sums want it
    engine_->BeginStep();
    at::Tensor loss = llama_->LossSum(batch);
    sum = loss.item<double>();
    engine_->Backward(std::move(loss), /*last_micro_batch=*/true);
  } while (!engine_->FinishBackward());
  const double clip = optim::ClipFactor(engine_->GradNorm(scale), kClipNorm);
  engine_->Step(setting_.learning_rate, scale * clip, ++step_);
  return sum / tokens;
}

void Side::Barrier() {
  if (comm_->size() > 1) comm_->Barrier({.label = "bench"});
}

}  // namespace trainyard::bench
