#include "trainer/loop/setup.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include "trainer/dist/gloo_comm.h"
#include "trainer/loop/optimizer.h"
#include "trainer/observe/log.h"

namespace trainyard::loop {
namespace {

constexpr const char* kEnvThreads = "OMP_NUM_THREADS";

// Positive number in a variable, or 0.
int NumberIn(const config::GetEnv& get, const char* name) {
  const char* text = get(name);
  return text == nullptr ? 0 : std::max(0, std::atoi(text));
}

// Cores that this process may use, divided among the ranks of the node. Fixed for the life of the process, since sums
// over threads are only the same bits for the same number of them.
int ThreadCount(const config::GetEnv& get) {
  if (const int asked = NumberIn(get, kEnvThreads); asked > 0) return asked;
  cpu_set_t cores;
  const int available = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
  return std::max(1, available / std::max(1, NumberIn(get, contract::kEnvNprocPerNode)));
}

std::vector<std::string> Paths(const std::vector<config::VolumePath>& paths, const std::string& volume_root) {
  std::vector<std::string> resolved;
  for (const auto& path : paths) resolved.push_back(path.Resolve(volume_root));
  return resolved;
}

Outcome<void> OpenData(Session& s) {
  const auto& data = s.job.data;
  const auto format = data.format == config::DataFormat::kText ? data::Format::kText : data::Format::kTokens;
  const int64_t length = s.job.training.sequence_length;
  const auto open = [&](const std::vector<config::VolumePath>& paths, const std::string& what, data::Order order,
                        std::unique_ptr<data::TokenSource>& source,
                        std::optional<data::BatchReader>& reader) -> Outcome<void> {
    auto opened = data::TokenSource::Open(format, Paths(paths, s.env.volume_root), s.job.model.vocab_size);
    if (!opened) return Fails(contract::kExitData, what + " data: " + opened.error().message);
    source = std::move(*opened);
    auto made = data::BatchReader::Make(*source, length, order, s.job.training.seed);
    if (!made) return Fails(contract::kExitData, what + " data: " + made.error().message);
    reader = std::move(*made);
    return {};
  };
  if (auto train = open(data.train, "training", data::Order::kShuffled, s.train_source, s.train); !train) return train;
  if (data.validation.empty() || s.job.training.evaluation_batches <= 0) return {};
  return open(data.validation, "validation", data::Order::kSequential, s.validation_source, s.validation);
}

}  // namespace

Outcome<std::unique_ptr<Session>> Prepare(const config::RankEnv& env, const config::GetEnv& get) {
  auto session = std::make_unique<Session>();
  Session& s = *session;
  s.env = env;
  auto job = config::Load(env.job_file);
  if (!job) return Fails(contract::kExitConfiguration, job.error().message);
  s.job = std::move(*job);
  if (Status fit = config::CheckTogether(s.job, s.env); !fit) {
    return Fails(contract::kExitConfiguration, fit.error().message);
  }
  s.threads = ThreadCount(get);
  at::set_num_threads(s.threads);
  s.report = std::make_unique<Report>(s.env, s.job.training.steps);
  s.report->Phase(contract::phase::kStarting);
  if (auto data = OpenData(s); !data) return Fails(data.error());
  if (const char* where = get(kEnvSampleLog); where != nullptr) {
    auto log = SampleLog::Open(SampleLogPath(where, env.run_dir, env.attempt, env.rank));
    if (!log) return Fails(contract::kExitConfiguration, log.error().message);
    s.sample_log = std::move(*log);
  }
  auto device = device::Open(config::DeviceName(s.job.training.device));
  if (!device) return Fails(contract::kExitConfiguration, device.error().message);
  s.device = std::move(*device);
  return session;
}

Outcome<void> Connect(Session& s) {
  dist::Rendezvous rendezvous;
  rendezvous.host = s.env.master_addr;
  rendezvous.port = s.env.master_port;
  rendezvous.prefix = s.env.RendezvousPrefix();
  rendezvous.rank = s.env.rank;
  rendezvous.world = s.env.world;
  // Ranks of one machine meet on its loopback even where its own name does not resolve.
  const bool loopback = s.env.master_addr == "localhost" || s.env.master_addr.rfind("127.", 0) == 0;
  rendezvous.bind_host = !s.env.pod_ip.empty() ? s.env.pod_ip : loopback ? "127.0.0.1" : "";
  rendezvous.say = observe::Warn;
  auto world = dist::ConnectGloo(rendezvous);
  if (!world) return Fails(ConnectFailure(world.error()));
  s.world = std::move(*world);
  return {};
}

void BuildModel(Session& s) {
  const auto& m = s.job.model;
  const model::LlamaConfig config{m.layers,     m.hidden_size,   m.attention_heads, m.kv_heads,   m.ffn_size,
                                  m.vocab_size, m.max_positions, m.tied_embeddings, m.rope_theta, m.norm_epsilon};
  engine::EngineOptions options;
  options.stage = static_cast<int>(s.job.strategy);
  options.compute_dtype = s.job.training.precision == config::Precision::kBf16 ? at::kBFloat16 : at::kFloat;
  options.seed = s.job.training.seed;
  options.optimizer = OptimizerOf(s.job.training.optimizer);
  s.engine = std::make_unique<engine::Engine>(*s.device, *s.world, model::LlamaUnits(config), options);
  s.model = std::make_unique<model::Llama>(config, *s.engine);
  observe::Info(c10::str(s.env.world, " ranks with ", s.threads, " threads each, ", s.engine->parameter_count(),
                         " parameters, stage ", options.stage, ", ", s.train->samples(), " training sequences of ",
                         s.job.training.sequence_length, " tokens"));
}

}  // namespace trainyard::loop
