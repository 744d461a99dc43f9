// What it costs to have master weights and optimizer state in host memory or on disk: seconds of an update of one rank
// until the last byte is where it belongs and all weights are ready for the next forward, against the same update with
// the state on the device. On a CPU both memories are one, so that what shows is the copying and the disk.
//   offload_bench [--json FILE] [--pairs N] [--dir DIRECTORY] [--threads N]
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/bench/report.h"
#include "trainer/device/device.h"
#include "trainer/dist/in_process_comm.h"
#include "trainer/engine/engine.h"
#include "trainer/model/llama.h"

namespace trainyard {
namespace {

using Clock = std::chrono::steady_clock;

// The 50M model of tests/bench/engine.
model::LlamaConfig Model() {
  model::LlamaConfig c;
  c.layers = 12, c.hidden = 512, c.heads = 8, c.kv_heads = 4, c.ffn = 1376, c.vocab = 16384, c.max_positions = 64;
  return c;
}

class Side {
 public:
  Side(device::Device& device, dist::Comm& comm, engine::EngineOptions options)
      : engine_(device, comm, model::LlamaUnits(Model()), std::move(options)) {
    model::Llama llama(Model(), engine_);
    engine_.BeginStep();
    engine_.Backward(llama.LossSum(at::ones({1, 9}, at::kLong)), true);
    engine_.FinishBackward();
  }

  // Seconds; the first `at_once` of them until Step has returned.
  struct Times {
    double all = 0, at_once = 0;
  };
  Times Update() {
    const auto begin = Clock::now();
    engine_.Step(1e-4, 1.0, ++step_);
    const auto stepped = Clock::now();
    Settle();
    return {Seconds(begin, Clock::now()), Seconds(begin, stepped)};
  }
  engine::MemoryReport memory() const { return engine_.memory(); }

 private:
  static double Seconds(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
  }
  // Every unit's weights once, as a forward uses them, and the end of what is still being written.
  void Settle() {
    at::NoGradGuard no_grad;
    for (int u = 0; u < engine_.unit_count(); ++u) {
      engine_.PreForward(u);
      engine_.PostForward(u, at::Tensor());
    }
    const auto shards = engine_.Shards();
    std::vector<float> row(static_cast<size_t>(shards.back().rows.size() * shards.back().global_shape.back()));
    engine_.CopyShard(shards.back().unit, shards.back().index, 1, row.data());
  }

  engine::Engine engine_;
  int64_t step_ = 0;
};

int Main(int argc, char** argv) {
  std::string json, directory = "/tmp";
  int pairs = 11, threads = 2;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--json") == 0) json = argv[i + 1];
    if (std::strcmp(argv[i], "--pairs") == 0) pairs = std::max(5, std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--dir") == 0) directory = argv[i + 1];
    if (std::strcmp(argv[i], "--threads") == 0) threads = std::max(1, std::atoi(argv[i + 1]));
  }
  at::set_num_threads(threads);
  auto device = device::Open("CPU").value();
  const auto comm = dist::MakeSelfComm();
  std::vector<bench::Row> rows;
  for (const bool bf16 : {false, true}) {
    for (const int stage : {0, 3}) {
      const auto make = [&](engine::Offload offload) {
        engine::EngineOptions options;
        options.stage = stage;
        options.compute_dtype = bf16 ? at::kBFloat16 : at::kFloat;
        options.offload = offload;
        options.offload_place.directory = directory;
        return std::make_unique<Side>(*device, *comm, options);
      };
      const auto none = make(engine::Offload::kNone);
      for (const auto& [name, offload] : {std::pair{"cpu", engine::Offload::kCpu}, {"nvme", engine::Offload::kNvme}}) {
        const auto side = make(offload);
        std::vector<double> all, at_once, base;
        for (int pair = 0; pair <= pairs; ++pair) {
          const Side::Times times = side->Update(), without = none->Update();
          if (pair == 0) continue;  // warm-up
          all.push_back(times.all), at_once.push_back(times.at_once), base.push_back(without.all);
        }
        const std::string what = std::string(name) + "_50M_s" + std::to_string(stage) + (bf16 ? "_bf16" : "_fp32");
        rows.push_back(bench::FromPairs("offload_update_" + what, "s", all, "none", base, "lower", 0));
        rows.push_back(bench::FromPairs("offload_step_" + what, "s", at_once, "none", base, "lower", 0));
        const engine::MemoryReport held = side->memory();
        std::printf("%s: %lld bytes on the device, %lld in host memory, %lld on disk\n", what.c_str(),
                    static_cast<long long>(held.total()), static_cast<long long>(held.host()),
                    static_cast<long long>(held.disk()));
      }
    }
  }
  bench::PrintTable(rows);
  if (!json.empty() && !bench::WriteJson(json, rows)) {
    std::fprintf(stderr, "offload_bench: cannot write %s\n", json.c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) { return trainyard::Main(argc, argv); }
