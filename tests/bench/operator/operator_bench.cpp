// The operator on a real API server (etcd, API server, scheduler, controller manager of 1.34) with simulated nodes
// (KWOK), as a process with the chart's default flags.
//
//   operator_bench --json docs/benchmarks/operator.json [--rows pods_8,jobs_100,...] [--help]
//
// pods_N           a job of N pods: from its creation until all pods exist, as a watch sees it. Baseline: the same pods
//                  posted by hand with as many connections, no operator running. Pairs alternate.
// jobs_N           the same for N jobs of 8 pods each.
// writes_per_job   own writes per job until all pods run, without 2 per pod (create, remove the gate) and
//                  without events, which are printed.
// killed_30_of_32  from deleting 30 of the 32 running pods of a job until 32 pods of the next attempt run.
// cpu_1000_jobs, rss_1000_jobs, idle_writes_per_minute   of an operator that starts 1,000 jobs beside foreign pods.
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "tests/bench/operator/bench_main.h"
#include "tests/bench/operator/pod_watch.h"
#include "tests/bench/operator/scene.h"

namespace trainyard::bench {
namespace {

using cluster::Kind;
using nlohmann::json;
using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{900};

struct Numbers {
  int pairs = 5, thousand_pairs = 3, foreign = 10000;
};

Row Plain(std::string name, double value, double spread, std::string unit, double target) {
  Row row;
  row.name = std::move(name), row.value = value, row.spread = spread, row.unit = std::move(unit);
  row.baseline = "none", row.better = "lower", row.target = target, row.target_of_ratio = false;
  return row;
}

// One run of `jobs` jobs of `pods` pods: seconds from the first creation to each milestone.
struct Times {
  double exist = 0, ungated = 0, bound = 0, running = 0;
};

class Bench {
 public:
  Bench(Scene& scene, const Arguments& arguments, const Numbers& numbers, std::vector<Row>& rows)
      : scene_(scene), arguments_(arguments), numbers_(numbers), rows_(rows), watch_(scene.cluster(), scene.ns()) {}

  // Alternating pairs: bare pods with no operator, then jobs with one.
  void Creation(const std::string& name, int jobs, int pods, int pairs, double target) {
    std::printf("%s: %d x %d pods, %d pairs\n", name.c_str(), jobs, pods, pairs);
    std::vector<double> measured, bare, running, bare_running;
    Times times;
    if (template_.empty()) WarmUp();
    for (int i = 0; i < pairs; ++i) {
      bare.push_back(Bare(jobs * pods));
      bare_running.push_back(BareRunning(jobs * pods));
      auto process = Must(scene_.StartOperator(), "operator");
      times = RunJobs(*process, jobs, pods);
      measured.push_back(times.exist), running.push_back(times.running);
      std::printf(
          "  pair %d: bare exist %.2f, running %.2f s; operator: exist %.2f, un-gated %.2f, bound %.2f, running %.2f "
          "s; "
          "ratio %.2f, running %.2f\n",
          i + 1, bare.back(), bare_running.back(), times.exist, times.ungated, times.bound, times.running,
          times.exist / bare.back(), times.running / bare_running.back());
      std::fflush(stdout);
      if (jobs == 100) CountWrites(*process, jobs, jobs * pods);
      Must(scene_.Clear(), "clearing");
    }
    rows_.push_back(FromPairs(name, "s", measured, "bare_pods", bare, "lower", target));
    rows_.push_back(Plain(name + "_ungated", times.ungated, 0, "s", 0));
    rows_.push_back(Plain(name + "_bound", times.bound, 0, "s", 0));
    rows_.push_back(FromPairs(name + "_running", "s", running, "bare_pods_running", bare_running, "lower", 0));
  }

  void Killed() {
    constexpr int kPods = 32, kKilled = 30;
    std::printf("killed_30_of_32: %d times\n", numbers_.pairs);
    std::vector<double> seconds;
    for (int i = 0; i < numbers_.pairs; ++i) {
      auto process = Must(scene_.StartOperator(), "operator");
      RunJobs(*process, 1, kPods);
      const auto pods = Must(scene_.cluster().List(Kind::kPod, {.ns = scene_.ns()}), "pods");
      PodWatch second(scene_.cluster(), scene_.ns(), "trainyard.dev/attempt=2");
      const Instant start = Clock::now();
      std::vector<std::thread> killers;
      for (int k = 0; k < kKilled; ++k) {
        killers.emplace_back([&, k] {
          (void)scene_.cluster().Delete(Kind::kPod, cluster::KeyOf(*pods.items[static_cast<size_t>(k)]),
                                        {.grace_seconds = 0});
        });
      }
      for (auto& killer : killers) killer.join();
      const auto end = second.Await([&](const PodCounts& c) { return c.running == kPods; }, std::chrono::seconds(120));
      if (!end) throw std::runtime_error("30 of 32 pods killed: no second attempt of 32 running pods within 2 minutes");
      seconds.push_back(Seconds(start, *end));
      std::printf("  %.2f s\n", seconds.back());
      Must(scene_.Clear(), "clearing");
    }
    rows_.push_back(Plain("killed_30_of_32", Median(seconds), Spread(seconds), "s", 2.0));
  }

  // As CountWrites found them.
  void Writes() {
    if (writes_.empty()) return;
    rows_.push_back(Plain("writes_per_job", Median(writes_), Spread(writes_), "writes", 6));
    rows_.push_back(Plain("events_per_job", Median(events_), Spread(events_), "events", 0));
  }

  // 1,000 jobs beside pods of others: creation against bare pods beside the same, and what the operator takes for it.
  void Thousand() {
    constexpr int kJobs = 1000, kPods = 8;
    if (template_.empty()) WarmUp();
    std::printf("jobs_1000: %d x %d pods beside %d foreign ones, %d pairs\n", kJobs, kPods, numbers_.foreign,
                numbers_.thousand_pairs);
    std::fflush(stdout);
    Must(scene_.Create(Kind::kPod, ForeignPods(numbers_.foreign)), "foreign pods");
    std::vector<double> measured, bare, ungated, bound, cpu, rss, idle;
    for (int i = 0; i < numbers_.thousand_pairs; ++i) {
      bare.push_back(Bare(kJobs * kPods));
      auto process = Must(scene_.StartOperator(), "operator");
      const Times times = RunJobs(*process, kJobs, kPods);
      measured.push_back(times.exist), ungated.push_back(times.ungated), bound.push_back(times.bound);
      cpu.push_back(process->CpuSeconds()), rss.push_back(process->PeakRssMegabytes());
      std::printf(
          "  pair %d: bare %.1f s; operator: exist %.1f, un-gated %.1f, bound %.1f, running %.1f s; ratio %.2f; CPU "
          "%.1f "
          "s, peak RSS %.0f MB\n",
          i + 1, bare.back(), times.exist, times.ungated, times.bound, times.running, times.exist / bare.back(),
          cpu.back(), rss.back());
      std::fflush(stdout);
      if (!arguments_.Want({"writes_per_job"}) || !arguments_.Want({"jobs_100"}))
        CountWrites(*process, kJobs, kJobs * kPods);
      if (arguments_.Want({"idle_writes_per_minute"})) idle.push_back(IdleWrites(*process));
      Must(scene_.Clear(), "clearing");
    }
    rows_.push_back(FromPairs("jobs_1000", "s", measured, "bare_pods", bare, "lower", 2.0));
    rows_.push_back(Plain("jobs_1000_ungated", Median(ungated), Spread(ungated), "s", 0));
    rows_.push_back(Plain("jobs_1000_bound", Median(bound), Spread(bound), "s", 0));
    rows_.push_back(Plain("cpu_1000_jobs", Median(cpu), Spread(cpu), "s", 0));
    rows_.push_back(Plain("rss_1000_jobs", Median(rss), Spread(rss), "MB", 100));
    if (!idle.empty()) rows_.push_back(Plain("idle_writes_per_minute", Median(idle), Spread(idle), "writes", 0.5));
  }

 private:
  // The first run is not measured; it gives the pods that the baseline posts.
  void WarmUp() {
    auto process = Must(scene_.StartOperator(), "operator");
    RunJobs(*process, 1, 8);
    template_ = Must(scene_.BareCopies(), "copies");
    Must(scene_.Clear(), "clearing");
  }

  // Pods of others, bound to the simulated nodes.
  static std::vector<json> ForeignPods(int count) {
    std::vector<json> pods;
    for (int i = 0; i < count; ++i) {
      char node[32];
      std::snprintf(node, sizeof(node), "sim-%04d", i % 1000);
      pods.push_back({{"apiVersion", "v1"},
                      {"kind", "Pod"},
                      {"metadata", {{"name", "foreign-" + std::to_string(i)}, {"namespace", "default"}}},
                      {"spec",
                       {{"nodeName", node},
                        {"containers",
                         {{{"name", "web"},
                           {"image", "registry.example.com/web:1"},
                           {"resources", {{"requests", {{"cpu", "100m"}, {"memory", "128Mi"}}}}}}}}}}});
    }
    return pods;
  }

  // Writes of an operator that has nothing to do, in a minute.
  static double IdleWrites(const OperatorProcess& process) {
    // What is still under way ends; statuses are at most 30 s late.
    std::this_thread::sleep_for(std::chrono::seconds(45));
    const auto before = process.Writes();
    const double cpu_before = process.CpuSeconds();
    std::this_thread::sleep_for(std::chrono::seconds(60));
    double writes = 0;
    for (const auto& [what, n] : process.Writes()) {
      const auto was = before.find(what);
      const double more = n - (was == before.end() ? 0 : was->second);
      if (more > 0) std::printf("  idle: %.0f x %s\n", more, what.c_str());
      writes += more;
    }
    std::printf("  idle: %.0f writes and %.2f CPU seconds in a minute\n", writes, process.CpuSeconds() - cpu_before);
    std::fflush(stdout);
    return writes;
  }

  // As ours are created: gated, so that the scheduler does not take part in one of the two only. Until all exist.
  double Bare(int n) {
    const Instant start = PostBare(n, true);
    if (!watch_.Await([n](const PodCounts& c) { return c.exist >= n; }, kPatience)) {
      throw std::runtime_error("bare pods do not all exist");
    }
    const double seconds = Seconds(start, *watch_.Reached().exist);
    Must(scene_.Clear(), "clearing");
    return seconds;
  }

  // The same pods without a gate, until all run: what the cluster takes for them without any operator.
  double BareRunning(int n) {
    const Instant start = PostBare(n, false);
    if (!watch_.Await([n](const PodCounts& c) { return c.running >= n; }, kPatience)) {
      throw std::runtime_error("bare pods do not all run");
    }
    const double seconds = Seconds(start, *watch_.Reached().running);
    Must(scene_.Clear(), "clearing");
    return seconds;
  }

  Instant PostBare(int n, bool gated) {
    std::vector<json> pods;
    for (int i = 0; i < n; ++i) {
      pods.push_back(template_[static_cast<size_t>(i) % template_.size()]);
      json& pod = pods.back();
      pod["metadata"]["name"] = "bare-" + std::to_string(i);
      // Pinned as ours are, evenly: a node has eight GPUs.
      pod["spec"]["affinity"] = scene_.PinTo(i);
      if (gated) pod["spec"]["schedulingGates"] = json::array({{{"name", "trainyard.dev/gang"}}});
    }
    watch_.Reset(n);
    const Instant start = Clock::now();
    Must(scene_.Create(Kind::kPod, pods), "bare pods");
    return start;
  }

  Times RunJobs(const OperatorProcess&, int jobs, int pods) {
    std::vector<json> all;
    for (int i = 0; i < jobs; ++i) all.push_back(scene_.Job("j" + std::to_string(i), pods));
    const int n = jobs * pods;
    watch_.Reset(n);
    const Instant start = Clock::now();
    Must(scene_.Create(Kind::kTrainingJob, all), "jobs");
    if (!watch_.Await([n](const PodCounts& c) { return c.running >= n; }, kPatience)) {
      const PodCounts now = watch_.Now();
      throw std::runtime_error("of " + std::to_string(n) + " pods exist " + std::to_string(now.exist) + ", un-gated " +
                               std::to_string(now.ungated) + ", bound " + std::to_string(now.bound) + ", running " +
                               std::to_string(now.running) + " after 15 minutes");
    }
    const auto reached = watch_.Reached();
    return {Seconds(start, *reached.exist), Seconds(start, *reached.ungated), Seconds(start, *reached.bound),
            Seconds(start, *reached.running)};
  }

  void CountWrites(const OperatorProcess& process, int jobs, int pods) {
    if (!arguments_.Want({"writes_per_job"})) return;
    std::this_thread::sleep_for(std::chrono::seconds(3));  // the status that says Running, and events
    double own = 0, events = 0;
    for (const auto& [what, n] : process.Writes()) {
      std::printf("  writes: %8.0f %s\n", n, what.c_str());
      (what.find(" events") != std::string::npos ? events : own) += n;
    }
    own = (own - 2.0 * pods) / jobs;
    std::printf("  writes: %.2f per job besides 2 per pod, and %.2f events\n", own, events / jobs);
    writes_.push_back(own), events_.push_back(events / jobs);
  }

  Scene& scene_;
  const Arguments& arguments_;
  const Numbers& numbers_;
  std::vector<Row>& rows_;
  PodWatch watch_;
  std::vector<json> template_;
  std::vector<double> writes_, events_;
};

void Measure(const Arguments& arguments, const Numbers& numbers, std::vector<Row>& rows) {
  const auto wants = [&](std::initializer_list<const char*> any) { return arguments.Want(any); };
  const bool thousand = wants({"jobs_1000", "cpu_1000_jobs", "rss_1000_jobs", "idle_writes_per_minute"});
  const int nodes = thousand ? 1010 : wants({"pods_512"}) ? 520 : wants({"jobs_100", "writes_per_job"}) ? 110 : 72;
  const auto scene = Must(Scene::Make(nodes, arguments.program, arguments.operator_flags), "cluster");
  std::printf("operator flags:");
  for (const std::string& flag : scene->flags()) std::printf(" %s", flag.c_str());
  std::printf("\n");
  Bench bench(*scene, arguments, numbers, rows);
  if (wants({"pods_8"})) bench.Creation("pods_8", 1, 8, numbers.pairs, 0);
  if (wants({"pods_64"})) bench.Creation("pods_64", 1, 64, numbers.pairs, 1.3);
  if (wants({"pods_512"})) bench.Creation("pods_512", 1, 512, numbers.pairs, 1.5);
  if (wants({"killed_30_of_32"})) bench.Killed();
  if (wants({"jobs_100", "writes_per_job"})) bench.Creation("jobs_100", 100, 8, numbers.pairs, 2.0);
  if (thousand) bench.Thousand();
  bench.Writes();
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) {
  using namespace trainyard::bench;
  Numbers numbers;
  return BenchMain(
      argc, argv, "The operator on a real API server; see the head of operator_bench.cpp",
      {"pods_8", "pods_64", "pods_512", "jobs_100", "jobs_1000", "cpu_1000_jobs", "rss_1000_jobs",
       "idle_writes_per_minute", "writes_per_job", "killed_30_of_32"},
      {{"pairs", &numbers.pairs}, {"thousand-pairs", &numbers.thousand_pairs}, {"foreign", &numbers.foreign}},
      [&](const Arguments& arguments, std::vector<Row>& rows) { Measure(arguments, numbers, rows); });
}
