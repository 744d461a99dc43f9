// What a GPU shows of the engine: one JSON line per row on standard output. tests/gpu/run.sh is the way in.
//   gpu_bench speed SETTING    SETTING: {"model": {layers, hidden, heads, kvHeads, ffn, vocab}, "batch", "length",
//                              "steps"}: tokens per second in BF16, and flops of one token for the MFU
//   gpu_bench memory           three sizes in BF16: bytes that the plan predicts, and that LibTorch's allocator had
//   lent at
//                              its peak
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "operator/sizing/memory.h"
#include "trainer/device/device.h"
#include "trainer/dist/in_process_comm.h"
#include "trainer/engine/engine.h"
#include "trainer/model/llama.h"
#include "trainer/observe/flops.h"
#include "trainer/optim/clip.h"

namespace trainyard::bench {
namespace {

constexpr uint64_t kSeed = 20261130;

// One rank that trains on random tokens, always the same ones.
class Run {
 public:
  Run(device::Device& device, const model::LlamaConfig& config, int64_t batch, int64_t length)
      : device_(device), comm_(dist::MakeSelfComm()), tokens_per_step_(batch * length) {
    engine::EngineOptions options;
    options.compute_dtype = at::kBFloat16;
    options.seed = kSeed;
    engine_ = std::make_unique<engine::Engine>(device, *comm_, model::LlamaUnits(config), options);
    llama_ = std::make_unique<model::Llama>(config, *engine_);
    at::Generator generator = at::detail::createCPUGenerator(kSeed);
    tokens_ = at::randint(0, config.vocab, {batch, length + 1}, generator, at::dtype(at::kLong)).to(device.torch());
  }
  // Returns the mean loss before the update.
  double Step() {
    const double scale = 1.0 / static_cast<double>(tokens_per_step_);
    engine_->BeginStep();
    at::Tensor loss = llama_->LossSum(tokens_);
    const double sum = loss.item<double>();
    engine_->Backward(std::move(loss), true);
    engine_->FinishBackward();
    engine_->Step(1e-4, scale * optim::ClipFactor(engine_->GradNorm(scale), 1.0), ++step_);
    return sum * scale;
  }
  // Seconds of `count` steps, the GPU's work included.
  double Seconds(int count) {
    device_.Synchronize();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) loss_ = Step();
    device_.Synchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  double loss() const { return loss_; }
  const engine::Engine& engine() const { return *engine_; }

 private:
  device::Device& device_;
  const std::unique_ptr<dist::Comm> comm_;
  const int64_t tokens_per_step_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<model::Llama> llama_;
  at::Tensor tokens_;
  int64_t step_ = 0;
  double loss_ = 0;
};

model::LlamaConfig ModelOf(const nlohmann::json& m, int64_t length) {
  return {m.at("layers"), m.at("hidden"), m.at("heads"), m.at("kvHeads"), m.at("ffn"), m.at("vocab"), length};
}

void Speed(device::Device& device, const nlohmann::json& setting) {
  const int64_t batch = setting.at("batch"), length = setting.at("length");
  const int steps = setting.at("steps");
  const model::LlamaConfig config = ModelOf(setting.at("model"), length);
  Run run(device, config, batch, length);
  run.Seconds(3);  // allocations, kernels, the clock of the GPU
  device.ResetPeak();
  std::vector<double> rates;
  for (int i = 0; i < 5; ++i) rates.push_back(static_cast<double>(batch * length * steps) / run.Seconds(steps));
  const double multiplied =
      static_cast<double>(run.engine().parameter_count()) - static_cast<double>(config.vocab * config.hidden);
  const double flops = observe::FlopsPerToken(multiplied, static_cast<double>(config.layers),
                                              static_cast<double>(length), static_cast<double>(config.hidden));
  std::cout << nlohmann::json{{"tokensPerSecond", rates},
                              {"flopsPerToken", flops},
                              {"peakBytes", device.TotalStats().peak_bytes},
                              {"loss", run.loss()}}
            << std::endl;
}

sizing::MemoryInput InputOf(const model::LlamaConfig& config, int64_t batch, int64_t length) {
  sizing::MemoryInput in;
  in.shape.layers = config.layers, in.shape.hidden = config.hidden, in.shape.heads = config.heads;
  in.shape.kv_heads = config.kv_heads, in.shape.ffn = config.ffn, in.shape.vocab = config.vocab;
  in.shape.max_positions = config.max_positions, in.shape.tied = config.tied;
  in.shape.parameters = sizing::CountParameters(in.shape);
  in.micro_batch = batch;
  in.sequence = length;
  in.recipe = sizing::RecipeOf(api::Precision::kBf16);
  in.engine = sizing::TrainerTraits(api::Precision::kBf16, sizing::Machine::kGpu);
  return in;
}

void Memory(device::Device& device) {
  struct Size {
    const char* name;
    model::LlamaConfig model;
    int64_t batch;
  };
  constexpr int64_t kLength = 2048;
  const Size sizes[] = {{"125M", {12, 768, 12, 12, 2048, 32000, kLength}, 8},
                        {"350M", {24, 1024, 16, 16, 2816, 32000, kLength}, 4},
                        {"1.1B", {22, 2048, 32, 4, 5632, 32000, kLength}, 4}};
  for (const Size& size : sizes) {
    device.ResetPeak();
    const int64_t before = device.TotalStats().current_bytes;
    int64_t peak = 0;
    {
      Run run(device, size.model, size.batch, kLength);
      run.Seconds(3);
      peak = device.TotalStats().peak_bytes - before;
    }
    const double planned = sizing::AllocatedPeakBytes(InputOf(size.model, size.batch, kLength));
    std::cout << nlohmann::json{{"name", size.name}, {"plannedBytes", planned}, {"peakBytes", peak}} << std::endl;
  }
}

int Main(int argc, char** argv) {
  try {
    auto device = device::Open("CUDA");
    if (!device) throw std::runtime_error(device.error().message);
    if (argc == 3 && std::strcmp(argv[1], "speed") == 0) {
      Speed(**device, nlohmann::json::parse(argv[2]));
    } else if (argc == 2 && std::strcmp(argv[1], "memory") == 0) {
      Memory(**device);
    } else {
      throw std::runtime_error("usage: gpu_bench speed SETTING | memory");
    }
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gpu_bench: %s\n", e.what());
    return 1;
  }
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) { return trainyard::bench::Main(argc, argv); }
