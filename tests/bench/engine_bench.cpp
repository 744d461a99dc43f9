// Speed of the engine: at one rank against a plain loop over the same model, and stage 3 against stage 0 at two ranks
// (two processes over Gloo on the loopback). Both sides alternate in the same run. And the bytes that one rank of four
// holds at stage 3 and at stage 0. On a busy machine only the ratios mean something.
//   engine_bench [--json FILE] [--pairs N] [--steps N]
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/bench/report.h"
#include "trainer/device/device.h"
#include "trainer/dist/gloo_comm.h"
#include "trainer/dist/in_process_comm.h"
#include "trainer/engine/engine.h"
#include "trainer/engine/init.h"
#include "trainer/model/llama.h"
#include "trainer/optim/clip.h"

namespace trainyard {
namespace {

struct Shape {
  const char* name;
  model::LlamaConfig config;
  int64_t batch, length;
};

// The quick start's size, and one with little arithmetic per parameter, where what the engine adds shows most.
std::vector<Shape> Shapes() {
  model::LlamaConfig small;
  small.layers = 6, small.hidden = 256, small.heads = 8, small.kv_heads = 4, small.ffn = 688, small.vocab = 256;
  small.max_positions = 256, small.tied = true;
  model::LlamaConfig wide = small;
  wide.layers = 4, wide.hidden = 768, wide.heads = 12, wide.kv_heads = 4, wide.ffn = 2048, wide.vocab = 8192;
  return {{"4M_parameters_1024_tokens", small, 4, 256}, {"30M_parameters_256_tokens", wide, 2, 128}};
}

constexpr optim::AdamWOptions kAdamW{};  // the engine's default
constexpr double kRate = 1e-4, kClip = 1.0;

at::Tensor Tokens(const Shape& shape) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  return at::randint(0, shape.config.vocab, {shape.batch, shape.length + 1}, generator, at::dtype(at::kLong));
}

// Leaves, autograd, gradient clipping and ATen's fused AdamW over all parameters at once.
class PlainTrainer final : public engine::ParameterHost {
 public:
  explicit PlainTrainer(const Shape& shape)
      : llama_(shape.config, *this), tokens_(Tokens(shape)), scale_(1.0 / static_cast<double>(tokens_.numel())) {
    for (const engine::UnitSpec& unit : model::LlamaUnits(shape.config)) {
      first_.push_back(params_.size());
      for (const engine::ParamSpec& spec : unit.params) {
        at::Tensor p = at::empty(spec.shape);
        engine::InitElements(spec, 1, 0, spec.numel(), p.mutable_data_ptr<float>());
        params_.push_back(p.set_requires_grad(true));
        moments_.push_back(at::zeros(spec.shape));
        squares_.push_back(at::zeros(spec.shape));
        steps_.push_back(at::zeros({}));
      }
    }
  }
  const at::Tensor& Param(int unit, int index) const override { return params_[first_[unit] + index]; }
  void PreForward(int) override {}
  at::Tensor PostForward(int, at::Tensor y) override { return y; }

  void Step() {
    for (at::Tensor& p : params_) p.mutable_grad() = at::Tensor();
    llama_.LossSum(tokens_).mul(scale_).backward();
    at::NoGradGuard no_grad;
    std::vector<at::Tensor> grads;
    for (at::Tensor& p : params_) grads.push_back(p.grad());
    const std::vector<at::Tensor> norms = at::_foreach_norm(grads, 2);
    const double norm = at::linalg_vector_norm(at::stack(norms)).item<double>();
    const double clip = optim::ClipFactor(norm, kClip);
    if (clip < 1.0) at::_foreach_mul_(grads, clip);
    at::_foreach_add_(steps_, 1);
    at::_fused_adamw_(params_, grads, moments_, squares_, {}, steps_, kRate, kAdamW.beta1, kAdamW.beta2,
                      kAdamW.weight_decay, kAdamW.eps, false, false);
  }

 private:
  std::vector<at::Tensor> params_, moments_, squares_, steps_;
  std::vector<size_t> first_;
  model::Llama llama_;
  at::Tensor tokens_;
  double scale_;
};

class EngineTrainer {
 public:
  EngineTrainer(const Shape& shape, device::Device& device, dist::Comm& comm, int stage)
      : engine_(device, comm, model::LlamaUnits(shape.config), {.stage = stage, .seed = 1}),
        llama_(shape.config, engine_),
        tokens_(Tokens(shape)),
        scale_(1.0 / static_cast<double>(tokens_.numel() * comm.size())) {}
  void Step() {
    engine_.BeginStep();
    engine_.Backward(llama_.LossSum(tokens_), true);
    engine_.FinishBackward();
    const double clip = optim::ClipFactor(engine_.GradNorm(scale_), kClip);
    engine_.Step(kRate, scale_ * clip, ++step_);
  }
  engine::MemoryReport memory() const { return engine_.memory(); }

 private:
  engine::Engine engine_;
  model::Llama llama_;
  at::Tensor tokens_;
  double scale_;
  int64_t step_ = 0;
};

double Seconds(const std::function<void()>& step, int steps) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < steps; ++i) step();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Alternates the two sides and swaps who goes first, so that drift of the machine hits both alike.
void Alternate(const std::function<void()>& a, const std::function<void()>& b, int pairs, int steps,
               std::vector<double>* seconds_a, std::vector<double>* seconds_b) {
  Seconds(a, 2), Seconds(b, 2);
  for (int i = 0; i < pairs; ++i) {
    if (i % 2 == 0) seconds_a->push_back(Seconds(a, steps));
    seconds_b->push_back(Seconds(b, steps));
    if (i % 2 == 1) seconds_a->push_back(Seconds(a, steps));
  }
}

bench::Row Rate(const std::string& name, const Shape& shape, int ranks, int steps, const std::vector<double>& measured,
                const std::string& baseline, const std::vector<double>& base, double target) {
  const double tokens = static_cast<double>(shape.batch * shape.length * ranks * steps);
  const auto rates = [tokens](std::vector<double> seconds) {
    for (double& s : seconds) s = tokens / s;
    return seconds;
  };
  return bench::FromPairs(name + "_" + shape.name, "tokens/s", rates(measured), baseline, rates(base), "higher",
                          target);
}

bench::Row OneRank(const Shape& shape, int pairs, int steps) {
  auto device = device::Open("CPU");
  auto comm = dist::MakeSelfComm();
  PlainTrainer plain(shape);
  EngineTrainer engine(shape, **device, *comm, 3);
  std::vector<double> ours, theirs;
  Alternate([&] { engine.Step(); }, [&] { plain.Step(); }, pairs, steps, &ours, &theirs);
  return Rate("engine_1_rank", shape, 1, steps, ours, "plain_loop", theirs, 0.95);
}

// Parameters, gradients and optimizer state of one rank of four at rest.
bench::Row BytesHeld(const Shape& shape) {
  auto device = device::Open("CPU");
  const auto bytes = [&](int stage) {
    const auto comms = dist::MakeInProcessComms(4);
    engine::Engine engine(**device, *comms[0], model::LlamaUnits(shape.config), {.stage = stage, .seed = 1});
    return std::vector<double>{static_cast<double>(engine.memory().total()) / (1 << 20)};
  };
  return bench::FromPairs(std::string("bytes_held_1_of_4_ranks_stage3_") + shape.name, "MiB", bytes(3), "stage0",
                          bytes(0), "lower", 0.30);
}

struct TwoRankResult {
  std::vector<double> stage3, stage0;
};

// One rank of the comparison, in a process of its own; rank 0 writes its seconds to `out`.
int RankMain(const Shape& shape, int rank, int port, int pairs, int steps, int out) {
  at::set_num_threads(1);
  auto device = device::Open("CPU");
  auto comm = dist::ConnectGloo({.host = "127.0.0.1",
                                 .port = port,
                                 .prefix = "engine_bench",
                                 .rank = rank,
                                 .world = 2,
                                 .bind_host = "127.0.0.1",
                                 .timeout = std::chrono::seconds(60)});
  if (!comm) {
    std::fprintf(stderr, "engine_bench: rank %d: %s\n", rank, comm.error().message.c_str());
    return 1;
  }
  EngineTrainer three(shape, **device, **comm, 3), zero(shape, **device, **comm, 0);
  TwoRankResult result;
  Alternate([&] { three.Step(); }, [&] { zero.Step(); }, pairs, steps, &result.stage3, &result.stage0);
  if (rank == 0) {
    for (const std::vector<double>* seconds : {&result.stage3, &result.stage0}) {
      const auto bytes = static_cast<ssize_t>(seconds->size() * sizeof(double));
      if (write(out, seconds->data(), static_cast<size_t>(bytes)) != bytes) return 1;
    }
  }
  (void)(*comm)->Close();
  return 0;
}

// Forks before this process has started any thread of LibTorch. Empty result: a rank failed.
TwoRankResult TwoRanks(const Shape& shape, int port, int pairs, int steps) {
  int ends[2];
  if (pipe(ends) != 0) return {};
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) _exit(RankMain(shape, rank, port, pairs, steps, ends[1]));
    ranks.push_back(pid);
  }
  close(ends[1]);
  TwoRankResult result;
  for (std::vector<double>* seconds : {&result.stage3, &result.stage0}) {
    double value = 0;
    for (int i = 0; i < pairs && read(ends[0], &value, sizeof(value)) == sizeof(value); ++i) seconds->push_back(value);
  }
  close(ends[0]);
  bool good = true;
  for (pid_t pid : ranks) {
    int status = 0;
    good = waitpid(pid, &status, 0) == pid && status == 0 && good;
  }
  if (!good || result.stage0.size() != static_cast<size_t>(pairs)) return {};
  return result;
}

int Main(int argc, char** argv) {
  std::string json;
  int pairs = 7, steps = 4;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--json") == 0) json = argv[i + 1];
    if (std::strcmp(argv[i], "--pairs") == 0) pairs = std::max(5, std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--steps") == 0) steps = std::max(1, std::atoi(argv[i + 1]));
  }
  std::vector<bench::Row> two, rows;
  int port = 20000 + getpid() % 20000;
  for (const Shape& shape : Shapes()) {
    std::fprintf(stderr, "two ranks, %s ...\n", shape.name);
    const TwoRankResult result = TwoRanks(shape, port++, pairs, steps);
    if (result.stage0.empty()) {
      std::fprintf(stderr, "engine_bench: a rank of the two-rank comparison failed\n");
      return 1;
    }
    two.push_back(Rate("stage3_2_ranks_gloo", shape, 2, steps, result.stage3, "stage0_2_ranks_gloo", result.stage0, 0));
  }
  for (const Shape& shape : Shapes()) {
    std::fprintf(stderr, "one rank, %s ...\n", shape.name);
    rows.push_back(OneRank(shape, pairs, steps));
  }
  rows.insert(rows.end(), two.begin(), two.end());
  for (const Shape& shape : Shapes()) rows.push_back(BytesHeld(shape));
  bench::PrintTable(rows);
  std::printf("%d pairs of %d steps; two ranks are two processes over Gloo with one thread each\n", pairs, steps);
  if (!json.empty() && !bench::WriteJson(json, rows)) {
    std::fprintf(stderr, "engine_bench: cannot write %s\n", json.c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) { return trainyard::Main(argc, argv); }
