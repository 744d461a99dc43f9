// How long a choice of nodes takes at 640 to 20,000 nodes, how long the queue takes to form when a burst of jobs waits,
// and what a day on 640 nodes comes to, against first fit by name and spread in the same run.
//
//   placement_bench [--json docs/benchmarks/placement.json] [--benchmark_filter=Decision/5000|Line|Days]
//
// Takes the other options of Google Benchmark as well. Rows that the file has under other names stay.
//
// A decision is what the operator does for one job: the yard is brought up to date with what the decision before it
// claimed and what has ended since, and nodes are chosen, or the reason why not is worded. Nodes carry the labels of
// GPU Feature Discovery; one in ten has a taint, one in twenty is cordoned, half the requests have a node selector, a
// third a required affinity, and 64 nodes are kept for a gang ahead in the queue.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>

#include "operator/placement/live_yard.h"
#include "operator/placement/place.h"
#include "tests/bench/placement_day.h"
#include "tests/bench/placement_line.h"
#include "tests/bench/report.h"

namespace trainyard::placement {
namespace {

constexpr int64_t kGpus = 8;

double Milliseconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

// 16 nodes in a rack, 16 racks in a block, 4 blocks in a zone.
std::shared_ptr<const api::NodeSnapshot> MakeNode(int64_t i) {
  auto node = std::make_shared<api::NodeSnapshot>();
  node->name = "node-" + std::to_string(i);
  node->ready = true;
  node->conditions = {{"Ready", "True"}, {"MemoryPressure", "False"}, {"DiskPressure", "False"}};
  node->labels = {{"nvidia.com/gpu.present", "true"},
                  {"nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"},
                  {"nvidia.com/gpu.count", "8"},
                  {"nvidia.com/gpu.memory", "81559"},
                  {"nvidia.com/gpu.family", "hopper"},
                  {"nvidia.com/gpu.compute.major", "9"},
                  {"nvidia.com/gpu.compute.minor", "0"},
                  {"nvidia.com/gpu.machine", "SYS-821GE-TNHR"},
                  {"nvidia.com/gpu.mode", "compute"},
                  {"nvidia.com/gpu.replicas", "1"},
                  {"nvidia.com/gpu.sharing-strategy", "none"},
                  {"nvidia.com/mig.capable", "true"},
                  {"nvidia.com/cuda.driver-version.full", "580.95.05"},
                  {"nvidia.com/cuda.runtime-version.full", "13.0"},
                  {"kubernetes.io/hostname", node->name},
                  {"kubernetes.io/arch", "amd64"},
                  {"kubernetes.io/os", "linux"},
                  {"topology.kubernetes.io/zone", "zone-" + std::to_string(i / 1024)},
                  {"example.com/block", "block-" + std::to_string(i / 256)},
                  {"example.com/rack", "rack-" + std::to_string(i / 16)},
                  {"example.com/pool", i % 4 == 0 ? "research" : "common"}};
  node->taints = {{"nvidia.com/gpu", "present", "NoSchedule"}};
  if (i % 10 == 3) node->taints.push_back({"example.com/team", "vision", "NoSchedule"});
  node->unschedulable = i % 20 == 7;
  node->allocatable = {{api::kGpuResource, kGpus},
                       {"cpu", 224000},
                       {"memory", int64_t{2} << 40},
                       {"pods", 110},
                       {"rdma/hca", 8},
                       {"ephemeral-storage", int64_t{1} << 40},
                       {"hugepages-2Mi", 0},
                       {"hugepages-1Gi", 0}};
  return node;
}

class Scene {
 public:
  explicit Scene(int64_t nodes) : nodes_(nodes), random_(7), live_(Options()) {
    for (int64_t i = 0; i < nodes; ++i) {
      live_.SetNode(MakeNode(i));
      // Two daemons on each, as everywhere.
      for (int daemon = 0; daemon < 2; ++daemon) {
        PodUse use;
        use.node = "node-" + std::to_string(i);
        use.requests = {{"cpu", 100}, {"memory", int64_t{1} << 27}};
        live_.ChangePod(nullptr, std::make_shared<const PodUse>(use));
      }
    }
    for (int64_t i = 0; i < 64; ++i) held_["node-" + std::to_string(i * nodes / 64)] = kGpus;
  }

  GangRequest Next() {
    GangRequest request;
    request.job_uid = "7b968a6d-c8aa-45e1-9e07-" + std::to_string(100000000000 + ++jobs_);
    request.products = {"H100-SXM"};
    if (Below(10) < 4) {
      request.per_node = int64_t{1} << Below(3);
      request.gpus = request.per_node;
    } else {
      request.per_node = kGpus;
      request.gpus = kGpus * (1 + Below(32));
    }
    request.pod_resources = {
        {"cpu", 4000 * request.per_node}, {"memory", request.per_node << 36}, {"rdma/hca", request.per_node}};
    if (Below(2) == 0) request.constraints.node_selector = {{"example.com/pool", "common"}};
    if (Below(3) == 0) {
      const api::NodeRequirement zones{"topology.kubernetes.io/zone", "In", {"zone-0", "zone-1", "zone-3", "zone-9"}};
      request.constraints.affinity = {{{zones}, {}}};
    }
    if (Below(4) == 0) request.constraints.tolerations = {{"example.com/team", "Exists", "", "", {}}};
    if (Below(4) == 0) request.level = "rack", request.level_required = Below(2) == 0;
    if (Below(4) == 0) request.excluded_nodes = {{"node-1", 1}, {"node-2", 2}};
    request.held = held_;
    return request;
  }

  // The whole of what the operator does for one job.
  bool Decide(const GangRequest& request) {
    auto placed = Place(live_.Current(), request);
    if (placed) chosen_ = std::move(placed->nodes);
    if (!placed) benchmark::DoNotOptimize(placed.error().message.data());
    return placed.has_value();
  }

  // The first nodes by name that can take a pod, whatever rack they are in.
  bool FirstFit(const GangRequest& request) {
    const Yard& yard = live_.Current();
    int64_t missing = request.gpus / request.per_node;
    for (size_t i = 0; i < yard.nodes().size() && missing > 0; ++i) {
      if (CanTake(yard, yard.nodes()[i], request)) --missing;
    }
    return missing == 0;
  }

  // What the last decision chose is claimed, and jobs end so that about 80 % stays in use.
  void Settle(const GangRequest& request, bool placed) {
    if (placed) {
      std::vector<Booking> claims;
      for (const std::string& node : chosen_) claims.push_back({request.job_uid, 1, node, request.per_node});
      live_.SetClaims(request.job_uid, std::move(claims));
      running_.emplace_back(request.job_uid, request.gpus);
      used_ += request.gpus;
    }
    while (used_ > nodes_ * kGpus * 80 / 100) {
      std::swap(running_[static_cast<size_t>(Below(static_cast<int64_t>(running_.size())))], running_.front());
      live_.SetClaims(running_.front().first, {});
      used_ -= running_.front().second;
      running_.pop_front();
    }
  }

 private:
  static YardOptions Options() {
    YardOptions options;
    options.topology = Topology::Of(
        {{"zone", "topology.kubernetes.io/zone"}, {"block", "example.com/block"}, {"rack", "example.com/rack"}});
    return options;
  }
  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  const int64_t nodes_;
  std::mt19937_64 random_;
  LiveYard live_;
  std::map<std::string, int64_t> held_;
  std::vector<std::string> chosen_;
  std::deque<std::pair<std::string, int64_t>> running_;
  int64_t jobs_ = 0, used_ = 0;
};

struct Samples {
  std::vector<double> decision, first_fit;
  double refused = 0;
};
std::map<int64_t, Samples>& AllSamples() {
  static std::map<int64_t, Samples> samples;
  return samples;
}

void Decision(benchmark::State& state) {
  Scene scene(state.range(0));
  for (int64_t i = 0; i < state.range(0) / 4; ++i) {  // until the yard is as full as it stays
    const GangRequest request = scene.Next();
    scene.Settle(request, scene.Decide(request));
  }
  Samples samples;
  for (auto _ : state) {
    const GangRequest request = scene.Next();
    bool placed = false;
    samples.decision.push_back(Milliseconds([&] { placed = scene.Decide(request); }));
    samples.first_fit.push_back(Milliseconds([&] { benchmark::DoNotOptimize(scene.FirstFit(request)); }));
    scene.Settle(request, placed);
    samples.refused += placed ? 0 : 1;
    state.SetIterationTime(samples.decision.back() / 1000);
  }
  const auto n = static_cast<double>(samples.decision.size());
  state.counters["p50_ms"] = bench::Quantile(samples.decision, 0.5);
  state.counters["p99_ms"] = bench::Quantile(samples.decision, 0.99);
  state.counters["max_ms"] = bench::Quantile(samples.decision, 1);
  state.counters["refused"] = samples.refused / n;
  state.counters["first_fit_p99_ms"] = bench::Quantile(samples.first_fit, 0.99);
  AllSamples()[state.range(0)] = std::move(samples);
}
BENCHMARK(Decision)->Arg(640)->Arg(2500)->Arg(5000)->Arg(20000)->UseManualTime()->Iterations(2000)->Unit(
    benchmark::kMillisecond);

// Quantiles of parts of the run, so that a spread can be told.
std::vector<double> Parts(const std::vector<double>& samples, double q) {
  constexpr size_t kParts = 5;
  std::vector<double> values;
  for (size_t part = 0; part < kParts; ++part) {
    const auto begin = samples.begin() + static_cast<std::ptrdiff_t>(part * samples.size() / kParts);
    const auto end = samples.begin() + static_cast<std::ptrdiff_t>((part + 1) * samples.size() / kParts);
    values.push_back(bench::Quantile(std::vector<double>(begin, end), q));
  }
  return values;
}

void AddDecisions(std::vector<bench::Row>& rows) {
  for (const auto& [nodes, samples] : AllSamples()) {
    if (samples.decision.size() < 100) continue;
    for (const auto& [name, q] : {std::pair("p50", 0.5), std::pair("p99", 0.99)}) {
      bench::Row row =
          bench::FromPairs("decision_" + std::string(name) + "_" + std::to_string(nodes) + "_nodes", "ms",
                           Parts(samples.decision, q), "first_fit", Parts(samples.first_fit, q), "lower", 0);
      if (nodes == 5000 && q > 0.9) row.target = 5, row.target_of_ratio = false;
      rows.push_back(std::move(row));
    }
  }
}

std::vector<bench::Row>& LineRows() {
  static std::vector<bench::Row> rows;
  return rows;
}

void Line(benchmark::State& state) {
  const std::string name = "line_" + std::to_string(state.range(0));
  for (auto _ : state) {
    for (const auto& [burst, what] : {std::pair(bench::Burst::kFits, "_waiting"), {bench::Burst::kWaits, "_blocked"}}) {
      LineRows().push_back(bench::MeasureLine(name + what, burst, state.range(0), 5));
    }
  }
}
BENCHMARK(Line)->Arg(1000)->Arg(4000)->Iterations(1)->Unit(benchmark::kSecond);

// Nothing against nothing has no ratio, and is written as 0.
bench::Row Finite(bench::Row row) {
  if (!std::isfinite(row.ratio)) row.ratio = 0;
  if (!std::isfinite(row.ratio_spread)) row.ratio_spread = 0;
  return row;
}

constexpr int kDays = 5;

struct Way {
  const char* name;
  bench::Choice choice;
  bench::Queue queue;
  std::vector<bench::Day> days;

  std::vector<double> Column(double bench::Day::* field) const {
    std::vector<double> values;
    for (const bench::Day& day : days) values.push_back(day.*field);
    return values;
  }
};

// The same days by each way, with nobody overtaking but in `line`: best fit with the queue of the operator. The
// baseline is first fit by name.
std::vector<Way>& Ways() {
  using bench::Choice, bench::Queue;
  static std::vector<Way> ways = {{"best_fit", Choice::kBestFit, Queue::kFifo, {}},
                                  {"line", Choice::kBestFit, Queue::kLine, {}},
                                  {"first_fit", Choice::kFirstFit, Queue::kFifo, {}},
                                  {"spread", Choice::kSpread, Queue::kFifo, {}}};
  return ways;
}

void Days(benchmark::State& state) {
  for (auto _ : state) {
    for (int day = 0; day < kDays; ++day) {
      for (Way& way : Ways()) {
        way.days.push_back(bench::PlayDay(
            {.seed = 7 + static_cast<uint64_t>(day), .load = 0.85, .choice = way.choice, .queue = way.queue}));
      }
    }
  }
}
BENCHMARK(Days)->Iterations(1)->Unit(benchmark::kSecond);

void PrintDays() {
  using bench::Day;
  std::printf("\na day on 640 nodes x 8 GPUs, 40 racks, offered load 85 %%; medians of %d days; waits in minutes\n",
              kDays);
  std::printf("%-14s %11s %9s %10s %9s | %9s %9s %9s %11s\n", "way", "utilisation", "one rack", "racks/gang", "mean",
              "p95 small", "medium", "large", "not started");
  for (const Way& way : Ways()) {
    double arrived = 0, left = 0;
    for (const Day& day : way.days) {
      arrived += static_cast<double>(day.arrived);
      left += static_cast<double>(day.not_started);
    }
    const auto median = [&way](double Day::* field) { return bench::Median(way.Column(field)); };
    std::printf("%-14s %10.1f%% %8.1f%% %10.2f %9.1f | %9.1f %9.1f %9.1f %10.1f%%\n", way.name,
                100 * median(&Day::utilisation), 100 * median(&Day::one_rack_share), median(&Day::racks_per_gang),
                median(&Day::wait_mean), median(&Day::wait_small), median(&Day::wait_medium), median(&Day::wait_large),
                100 * left / arrived);
  }
}

void AddDays(std::vector<bench::Row>& rows) {
  using bench::Day;
  const std::vector<Way>& ways = Ways();
  if (ways[0].days.empty()) return;
  PrintDays();
  struct Figure {
    const char* name;
    const char* unit;
    const char* better;
    double Day::* field;
  };
  for (const Figure& figure : {Figure{"one_rack_share", "share", "higher", &Day::one_rack_share},
                               Figure{"utilisation", "share", "higher", &Day::utilisation},
                               Figure{"racks_per_gang", "racks", "lower", &Day::racks_per_gang},
                               Figure{"wait_p95_small", "min", "lower", &Day::wait_small},
                               Figure{"wait_p95_medium", "min", "lower", &Day::wait_medium},
                               Figure{"wait_p95_large", "min", "lower", &Day::wait_large}}) {
    const std::string name = std::string("sim_") + figure.name;
    const std::vector<double> base = ways[2].Column(figure.field);
    for (const size_t way : {size_t{0}, size_t{1}, size_t{3}}) {
      rows.push_back(Finite(bench::FromPairs(way == 0 ? name : name + "_" + ways[way].name, figure.unit,
                                             ways[way].Column(figure.field), "first_fit", base, figure.better, 0)));
    }
  }
}

int Run(int argc, char** argv) {
  const char* json = nullptr;
  std::vector<char*> others;
  for (int i = 0; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      json = argv[++i];
    } else {
      others.push_back(argv[i]);
    }
  }
  int count = static_cast<int>(others.size());
  benchmark::Initialize(&count, others.data());
  if (benchmark::ReportUnrecognizedArguments(count, others.data())) return 2;
  benchmark::RunSpecifiedBenchmarks();
  std::vector<bench::Row> rows;
  AddDecisions(rows);
  rows.insert(rows.end(), LineRows().begin(), LineRows().end());
  AddDays(rows);
  bench::PrintTable(rows);
  if (json != nullptr && !bench::WriteJson(json, rows, /*keep_others=*/true)) {
    std::fprintf(stderr, "%s cannot be written\n", json);
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace trainyard::placement

int main(int argc, char** argv) { return trainyard::placement::Run(argc, argv); }
