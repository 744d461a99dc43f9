// Whole gangs and queues on a real API server (etcd, API server, scheduler, controller manager of 1.34) with simulated
// nodes (KWOK), the operator as a process with the chart's default flags.
//
//   gang_bench --json docs/benchmarks/placement.json [--rows gang_512_bound,jobs_4000_bound,time_to_reason] [--help]
//
// gang_512_bound   one gang of 512 pods that fill 512 nodes: from the job's creation until the scheduler has bound all.
//                  Baseline: the same pods, pinned alike and without a gate, posted with as many connections.
// jobs_4000_bound  4,000 jobs of one GPU that fill 500 nodes: from the first creation until all pods are bound.
//                  Baseline: 4,000 bare pods.
// time_to_reason   from the creation of a job that no node can hold until its status says what is missing.
//
// Rows that the file has from other programs are kept.
#include <cstdio>
#include <string>
#include <vector>

#include "operator/cluster/informer.h"
#include "tests/bench/operator/bench_main.h"
#include "tests/bench/operator/pod_watch.h"
#include "tests/bench/operator/scene.h"

namespace trainyard::bench {
namespace {

using cluster::Kind;
using nlohmann::json;
using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{900};

constexpr int kReasons = 20;

class Bench {
 public:
  explicit Bench(Scene& scene) : scene_(scene), watch_(scene.cluster(), scene.ns()) {}

  // Alternating pairs of `jobs` jobs of `pods` pods with `per_pod` GPUs each, and as many bare pods. `target` is of the
  // value.
  Row Bound(const std::string& name, int jobs, int pods, int per_pod, int pairs, double target) {
    std::printf("%s: %d x %d pods with %d GPUs, %d pairs\n", name.c_str(), jobs, pods, per_pod, pairs);
    std::fflush(stdout);
    const std::vector<json> bare = BarePods(pods, per_pod);
    std::vector<double> measured, base;
    for (int i = 0; i < pairs; ++i) {
      base.push_back(BareBound(bare, jobs * pods));
      auto process = Must(scene_.StartOperator(), "operator");
      std::vector<json> all;
      for (int j = 0; j < jobs; ++j) all.push_back(Job("j" + std::to_string(j), pods, per_pod));
      watch_.Reset(jobs * pods);
      const Instant start = Clock::now();
      Must(scene_.Create(Kind::kTrainingJob, all), "jobs");
      AwaitBound(jobs * pods, name);
      const PodWatch::Milestones reached = watch_.Reached();
      measured.push_back(Seconds(start, *reached.bound));
      std::printf("  pair %d: bare bound %.2f s; operator: exist %.2f, un-gated %.2f, bound %.2f s; CPU %.1f s\n",
                  i + 1, base.back(), Seconds(start, *reached.exist), Seconds(start, *reached.ungated), measured.back(),
                  process->CpuSeconds());
      std::fflush(stdout);
      Must(scene_.Clear(), "clearing");
    }
    Row row = FromPairs(name, "s", measured, "bare_pods_bound", base, "lower", target);
    row.target_of_ratio = false;
    return row;
  }

  Row TimeToReason() {
    std::printf("time_to_reason: %d jobs, one after the other\n", kReasons);
    auto process = Must(scene_.StartOperator(), "operator");
    cluster::Informer<json> jobs(scene_.cluster(), Kind::kTrainingJob, {scene_.ns(), ""},
                                 [](const json& job) -> Result<json> { return job; });
    jobs.Start();
    if (!jobs.WaitSynced(Milliseconds(30'000))) throw std::runtime_error("jobs cannot be listed");
    std::vector<double> seconds;
    std::string said;
    for (int i = 0; i < kReasons; ++i) {
      // One GPU per pod on more pods than there are GPUs.
      json job = Job("never" + std::to_string(i), 8 * scene_.nodes() + 8, 1);
      job["spec"]["training"] = {{"globalBatchSize", 65536}};
      const Instant start = Clock::now();
      Must(scene_.Create(Kind::kTrainingJob, {job}), "job");
      const cluster::ObjectKey key{scene_.ns(), "never" + std::to_string(i)};
      const bool told = jobs.WaitFor(Milliseconds(60'000), [&](const auto& items) {
        const auto found = items.find(key);
        if (found == items.end()) return false;
        said = found->second->value("/status/reason"_json_pointer, "");
        return !said.empty();
      });
      if (!told) throw std::runtime_error("a job that no node can hold has no reason after a minute");
      seconds.push_back(Seconds(start, Clock::now()));
    }
    std::printf("  %s\n", said.c_str());
    Must(scene_.Clear(), "clearing");
    Row row;
    row.name = "time_to_reason", row.value = Quantile(seconds, 0.99), row.spread = Spread(seconds), row.unit = "s";
    row.baseline = "none", row.better = "lower", row.target = 1, row.target_of_ratio = false;
    return row;
  }

 private:
  json Job(const std::string& name, int pods, int per_pod) const {
    json job = scene_.Job(name, pods);
    job["spec"]["gpus"]["count"] = pods * per_pod;
    job["spec"]["gpus"]["perNode"] = per_pod;
    job["spec"]["training"]["globalBatchSize"] = 8192;  // a sequence for each GPU at least
    return job;
  }

  // What the operator makes of one such gang, as pods of nobody without a gate: the first eight of them, to be
  // repeated.
  std::vector<json> BarePods(int pods, int per_pod) {
    const int n = std::min(pods, 8);
    auto process = Must(scene_.StartOperator(), "operator");
    watch_.Reset(n);
    Must(scene_.Create(Kind::kTrainingJob, {Job("template", n, per_pod)}), "job");
    AwaitBound(n, "template");
    auto copies = Must(scene_.BareCopies(), "copies");
    Must(scene_.Clear(), "clearing");
    return copies;
  }

  double BareBound(const std::vector<json>& templates, int n) {
    std::vector<json> all;
    for (int i = 0; i < n; ++i) {
      all.push_back(templates[static_cast<size_t>(i) % templates.size()]);
      all.back()["metadata"]["name"] = "bare-" + std::to_string(i);
      all.back()["spec"]["affinity"] = scene_.PinTo(i);
    }
    watch_.Reset(n);
    const Instant start = Clock::now();
    Must(scene_.Create(Kind::kPod, all), "bare pods");
    AwaitBound(n, "bare pods");
    const double seconds = Seconds(start, *watch_.Reached().bound);
    Must(scene_.Clear(), "clearing");
    return seconds;
  }

  void AwaitBound(int n, const std::string& what) {
    if (watch_.Await([n](const PodCounts& c) { return c.bound >= n; }, kPatience)) return;
    const PodCounts now = watch_.Now();
    throw std::runtime_error(what + ": of " + std::to_string(n) + " pods exist " + std::to_string(now.exist) +
                             ", un-gated " + std::to_string(now.ungated) + ", bound " + std::to_string(now.bound) +
                             " after 15 minutes");
  }

  Scene& scene_;
  PodWatch watch_;
};

void Measure(const Arguments& arguments, int pairs, int queue_pairs, std::vector<Row>& rows) {
  if (arguments.Want({"gang_512_bound", "time_to_reason"})) {
    const auto scene = Must(Scene::Make(512, arguments.program, arguments.operator_flags), "cluster");
    Bench bench(*scene);
    if (arguments.Want({"gang_512_bound"})) rows.push_back(bench.Bound("gang_512_bound", 1, 512, 8, pairs, 5));
    if (arguments.Want({"time_to_reason"})) rows.push_back(bench.TimeToReason());
  }
  if (arguments.Want({"jobs_4000_bound"})) {
    const auto scene = Must(Scene::Make(500, arguments.program, arguments.operator_flags), "cluster");
    rows.push_back(Bench(*scene).Bound("jobs_4000_bound", 4000, 1, 1, queue_pairs, 0));
  }
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) {
  using namespace trainyard::bench;
  int pairs = 3, queue_pairs = 1;
  return BenchMain(
      argc, argv, "Whole gangs and queues on a real API server; see the head of gang_bench.cpp",
      {"gang_512_bound", "jobs_4000_bound", "time_to_reason"}, {{"pairs", &pairs}, {"queue-pairs", &queue_pairs}},
      [&](const Arguments& arguments, std::vector<Row>& rows) { Measure(arguments, pairs, queue_pairs, rows); });
}
