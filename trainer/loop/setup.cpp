#include "trainer/loop/setup.h"

#include <linux/magic.h>
#include <sched.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include "trainer/contract/flight_record.h"
#include "trainer/dist/gloo_comm.h"
#include "trainer/dist/nccl_plugin.h"
#include "trainer/loop/description.h"
#include "trainer/loop/determinism.h"
#include "trainer/loop/optimizer.h"
#include "trainer/loop/tokenizer_check.h"
#include "trainer/observe/log.h"

namespace trainyard::loop {
namespace {

constexpr const char* kEnvThreads = "OMP_NUM_THREADS";
constexpr int kMostThreads = 1024;  // each is a stack and a slice of the allocator

// Positive number in a variable, or 0; of a list (one per level of nesting) the first.
int NumberIn(const config::GetEnv& get, const char* name) {
  const char* text = get(name);
  return text == nullptr ? 0 : static_cast<int>(std::clamp(std::strtoll(text, nullptr, 10), 0LL, 1LL << 30));
}

// What the job says, else cores that this process may use, divided among the ranks of the node. Fixed for the life of
// the process, since sums over threads are only the same bits for the same number of them. How many ranks share a node
// must not decide it where the world size must not matter.
int ThreadCount(const config::Training& training, const config::GetEnv& get) {
  if (training.threads > 0) return training.threads;
  if (training.determinism == config::Determinism::kWorldSize) return 1;
  if (const int asked = NumberIn(get, kEnvThreads); asked > 0) return std::min(asked, kMostThreads);
  cpu_set_t cores;
  const int available = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
  return std::max(1, available / std::max(1, NumberIn(get, contract::kEnvNprocPerNode)));
}

Outcome<std::unique_ptr<data::TokenSource>> OpenSource(const Session& s, const std::vector<config::VolumePath>& files,
                                                       const std::string& what) {
  const auto format = s.job.data.format == config::DataFormat::kText ? data::Format::kText : data::Format::kTokens;
  std::vector<std::string> paths;
  for (const auto& file : files) paths.push_back(file.Resolve(s.env.volume_root));
  auto opened = data::TokenSource::Open(format, paths, s.description.vocab);
  if (!opened) return Fails(contract::kExitData, what + " data: " + opened.error().message);
  return std::move(*opened);
}

data::ReadOptions OptionsOf(const Session& s, data::Order order) {
  return {s.job.training.sequence_length, order, s.job.training.seed, s.job.data.document_separator};
}

// Files with weights are sources of a mixture, files without are one source.
Outcome<void> OpenTraining(Session& s) {
  std::vector<double> weights = s.job.data.Weights();
  std::vector<std::vector<config::VolumePath>> groups(weights.empty() ? 1 : weights.size());
  for (size_t i = 0; i < s.job.data.train.size(); ++i) groups[weights.empty() ? 0 : i].push_back(s.job.data.train[i]);
  if (weights.empty()) weights = {1};
  std::vector<const data::TokenSource*> sources;
  for (const auto& files : groups) {
    auto source = OpenSource(s, files, "training");
    if (!source) return Fails(source.error());
    sources.push_back(source->get());
    s.train_sources.push_back(std::move(*source));
  }
  auto mixture = data::Mixture::Make(weights);
  if (!mixture) return Fails(contract::kExitConfiguration, "data.train: " + mixture.error().message);
  auto made = data::BatchReader::Make(sources, std::move(*mixture), OptionsOf(s, data::Order::kShuffled));
  if (!made) return Fails(contract::kExitData, "training data: " + made.error().message);
  s.train = std::move(*made);
  const config::Training& training = s.job.training;
  if (s.train->samples() < training.global_batch_size) {
    return Fails(contract::kExitData,
                 c10::str("training data: ", s.train->samples(), " sequences of training.sequenceLength ",
                          training.sequence_length, " are fewer than one training.globalBatchSize of ",
                          training.global_batch_size, ": each step would repeat them; give more data or lower it"));
  }
  data::BackgroundReader::Options feed;
  feed.global_batch = training.global_batch_size;
  feed.plan = data::PlanStep(training.global_batch_size, training.micro_batch_size, s.env.world, s.env.rank);
  feed.end = training.steps * training.global_batch_size;
  s.feed = std::make_unique<data::BackgroundReader>(*s.train, std::move(feed));
  return {};
}

Outcome<void> OpenValidation(Session& s) {
  if (s.job.data.validation.empty() || s.job.training.evaluation_batches <= 0) return {};
  auto source = OpenSource(s, s.job.data.validation, "validation");
  if (!source) return Fails(source.error());
  s.validation_source = std::move(*source);
  auto made = data::BatchReader::Make(*s.validation_source, OptionsOf(s, data::Order::kSequential));
  if (!made) return Fails(contract::kExitData, "validation data: " + made.error().message);
  s.validation = std::move(*made);
  return {};
}

// A rank that only runs along costs what the others cost.
void WarnOfIdleRanks(const Session& s) {
  const config::Training& t = s.job.training;
  const int64_t count = (t.global_batch_size + t.micro_batch_size - 1) / t.micro_batch_size;
  if (s.env.rank != 0 || count >= s.env.world) return;
  observe::Warn(c10::str(s.env.world - count, " of ", s.env.world, " ranks have no data: training.globalBatchSize ",
                         t.global_batch_size, " in micro-batches of ", t.micro_batch_size, " is work for ", count,
                         "; lower training.microBatchSize or use fewer ranks"));
}

model::ActivationCheckpointing Checkpointing(config::ActivationCheckpointing mode) {
  switch (mode) {
    case config::ActivationCheckpointing::kNone:
      return model::ActivationCheckpointing::kNone;
    case config::ActivationCheckpointing::kSelective:
      return model::ActivationCheckpointing::kSelective;
    case config::ActivationCheckpointing::kFull:
      return model::ActivationCheckpointing::kFull;
  }
  return model::ActivationCheckpointing::kNone;
}

engine::Offload OffloadOf(const config::Parallelism& parallelism) {
  switch (parallelism.offload) {
    case config::Offload::kNone:
      return engine::Offload::kNone;
    case config::Offload::kCpu:
      return engine::Offload::kCpu;
    case config::Offload::kNvme:
      return engine::Offload::kNvme;
  }
  return engine::Offload::kNone;
}

std::optional<model::Adapter> AdapterOf(const config::Job& job) {
  if (!job.model.adapter) return std::nullopt;
  const config::Adapter& a = *job.model.adapter;
  return model::Adapter{.rank = a.rank,
                        .alpha = a.alpha,
                        .dropout = a.dropout,
                        .targets = a.targets,
                        .nf4 = a.nf4,
                        .seed = job.training.seed};
}

void SayOffload(const Session& s) {
  const engine::MemoryReport held = s.engine->memory();
  if (held.host() + held.disk() == 0) return;
  const std::string& place = s.engine->options().offload_place.directory;
  observe::Info(c10::str("offload: this rank holds ", held.host(), " bytes in host memory",
                         held.disk() > 0 ? c10::str(" and ", held.disk(), " bytes in a file of ", place) : ""));
  struct statfs system{};
  if (held.disk() > 0 && statfs(place.c_str(), &system) == 0 && system.f_type == TMPFS_MAGIC) {
    observe::Warn("parallelism.offloadVolume " + s.job.parallelism.offload_volume +
                  " is a tmpfs, which is host memory: use a volume on a disk, or parallelism.offload CPU");
  }
}

}  // namespace

Outcome<void> Prepare(Session& s, const config::GetEnv& get) {
  const config::RankEnv& env = s.env;
  auto job = config::Load(env.job_file);
  if (!job) return Fails(contract::kExitConfiguration, job.error().message);
  s.job = std::move(*job);
  if (Status fit = config::CheckTogether(s.job, env); !fit) {
    return Fails(contract::kExitConfiguration, fit.error().message);
  }
  auto description = Describe(s.job, env.volume_root);
  if (!description) return Fails(description.error());
  s.description = std::move(*description);
  auto adapter = DescribeAdapter(s.job, s.description);
  if (!adapter) return Fails(adapter.error());
  s.adapter = std::move(*adapter);
  ChooseKernels(s.job.training.determinism);  // before anything has woken the libraries
  s.threads = ThreadCount(s.job.training, get);
  at::set_num_threads(s.threads);
  s.report = std::make_unique<Report>(env, s.job.observe, s.job.training.steps);
  s.watch = std::make_shared<StepWatch>(env.rank);
  s.report->Phase(contract::phase::kStarting);
  if (auto train = OpenTraining(s); !train) return Fails(train.error());
  if (auto validation = OpenValidation(s); !validation) return Fails(validation.error());
  if (auto same = CheckTokenizers(s); !same) return Fails(same.error());
  auto text_sample = OpenTextSample(s);
  if (!text_sample) return Fails(text_sample.error());
  s.text_sample = std::move(*text_sample);
  WarnOfIdleRanks(s);
  if (const char* where = get(kEnvSampleLog); where != nullptr) {
    auto log = SampleLog::Open(SampleLogPath(where, env.run_dir, env.attempt, env.rank));
    if (!log) return Fails(contract::kExitConfiguration, log.error().message);
    s.sample_log = std::move(*log);
  }
  auto device = device::Open(config::DeviceName(s.job.training.device), s.env.local_rank);
  if (!device) return Fails(contract::kExitConfiguration, device.error().message);
  s.device = std::move(*device);
  return {};
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
  rendezvous.record_file = s.env.run_dir + "/" + contract::flight::FileName(s.env.rank);
  rendezvous.deadline = std::chrono::seconds(s.env.collective_timeout_seconds);
  auto world = dist::ConnectGloo(rendezvous);
  if (!world) return Fails(ConnectFailure(world.error()));
  s.world = std::move(*world);
  s.world->set_observer(s.watch);
  s.world->set_default_deadline(rendezvous.deadline);
  if (!s.device->torch().is_cuda()) return {};
  auto gpus = dist::OpenNccl(*s.world, s.env.local_rank, rendezvous.timeout);
  if (!gpus) return Fails(ConnectFailure(gpus.error()));
  s.gpus = std::move(*gpus);
  s.gpus->set_observer(s.watch);
  return {};
}

void BuildModel(Session& s) {
  model::Config config = model::ConfigOf(s.description);
  // Angles of further positions would only take memory: a published model has many, and nothing here is longer.
  if (auto* llama = std::get_if<model::LlamaConfig>(&config)) {
    const int64_t sample = s.text_sample ? s.text_sample->positions() : 0;
    llama->max_positions = std::max(s.job.training.sequence_length, sample);
  }
  engine::EngineOptions options;
  const config::Parallelism& parallelism = s.job.parallelism;
  options.stage = parallelism.stage();
  options.reduce_each_micro_batch = parallelism.gradient_reduction == config::GradientReduction::kEachMicroBatch;
  options.compute_dtype = s.job.training.precision == config::Precision::kBf16 ? at::kBFloat16 : at::kFloat;
  options.seed = s.job.training.seed;
  options.optimizer = OptimizerOf(s.job.training.optimizer);
  options.offload = OffloadOf(parallelism);
  if (options.offload == engine::Offload::kNvme) {
    options.offload_place.directory = config::VolumePath{parallelism.offload_volume, ""}.Resolve(s.env.volume_root);
  }
  if (s.job.training.determinism == config::Determinism::kWorldSize) {
    options.exact_micro_batches =
        data::MicroBatchCount(s.job.training.global_batch_size, s.job.training.micro_batch_size);
  }
  s.mesh = std::make_unique<dist::Mesh>(s.tensors(), config::ShardSize(parallelism, s.env));
  const std::optional<model::Adapter> adapter = AdapterOf(s.job);
  // A published model is read before the first step, by a checkpoint or by its files.
  if (s.job.model.pretrained) options.draw = adapter ? engine::Draw::kTrained : engine::Draw::kNone;
  s.engine = std::make_unique<engine::Engine>(*s.device, *s.mesh, model::Units(config, adapter), options);
  engine::ParameterHost* host = s.engine.get();
  if (s.job.training.profile) {
    std::vector<std::string> names;
    for (int u = 0; u < s.engine->unit_count(); ++u) names.push_back(s.engine->unit(u).name);
    s.traced = std::make_unique<TracedHost>(*s.engine, s.watch->trace(), std::move(names));
    host = s.traced.get();
  }
  s.model = model::Make(config, *host, Checkpointing(s.job.training.activation_checkpointing), adapter);
  if (s.job.data.document_separator) s.model->SeparateDocuments(*s.job.data.document_separator);
  observe::Info(c10::str(s.env.world, " ranks with ", s.threads, " threads each, ", s.engine->parameter_count(),
                         " parameters, stage ", options.stage, " in groups of ", s.mesh->shard().size(), ", ",
                         s.train->samples(), " training sequences of ", s.job.training.sequence_length, " tokens"));
  SayOffload(s);
}

}  // namespace trainyard::loop
