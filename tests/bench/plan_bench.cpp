// How long a plan takes, on one core: over the whole catalogue and 1 to 1,024 GPUs, and as the operator makes one for a
// job. The baseline of each is a plan of one product at one size, measured in turn with it.
//
//   plan_bench [--json FILE]
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>

#include "operator/api/defaults.h"
#include "operator/sizing/plan.h"
#include "tests/bench/report.h"

namespace trainyard::sizing {
namespace {

constexpr int kRounds = 41;

double Milliseconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

// What it found is used, so that nothing is left out.
int64_t g_options = 0;

void Plan(const PlanRequest& request) {
  auto plan = MakePlan(request);
  if (!plan || !plan->chosen) {
    std::fprintf(stderr, "no plan: %s\n", plan ? plan->not_chosen.c_str() : plan.error().message.c_str());
    std::exit(1);
  }
  g_options += static_cast<int64_t>(plan->options.size());
}

PlanRequest Everything(int64_t parameters, int64_t micro_batch) {
  PlanRequest r;
  r.shape = *ShapeFromCount(parameters);
  r.global_batch = 1024;
  r.micro_batch = micro_batch;
  r.tokens = 1e11;
  r.prices[""] = 2;
  r.checkpointing = {Checkpointing::kNone, Checkpointing::kSelective, Checkpointing::kFull};
  return r;
}

bench::Row Measure(const std::string& name, const PlanRequest& request, double target) {
  PlanRequest one = request;
  one.supply = {{.product = "H100-SXM"}};
  one.counts = {64};
  Plan(request);
  std::vector<double> all, single;
  for (int i = 0; i < kRounds; ++i) {
    all.push_back(Milliseconds([&] { Plan(request); }));
    single.push_back(Milliseconds([&] { Plan(one); }));
  }
  bench::Row row = bench::FromPairs(name, "ms", all, "one_product_one_size", single, "lower", 0);
  row.target = target;
  row.target_of_ratio = false;
  return row;
}

bench::Row MeasureJob() {
  api::TrainingJob job;
  job.meta.name = "job";
  job.spec.model.parameters = "7B";
  job.spec.image = "example.com/finetune:1";
  job.spec.command = {"torchrun", "train.py"};
  job.spec.parallelism.strategy = api::Strategy::kFsdp;
  api::ApplyDefaults(job);
  const std::vector<ProductSupply> supply = {
      {.product = "H100-SXM", .memory_mib = 81559, .gpus_per_node = 8, .nodes = 128},
      {.product = "L40S", .memory_mib = 46068, .gpus_per_node = 8, .nodes = 128}};
  api::TrainingJob sized = job;
  sized.spec.gpus.count = 8;
  auto plan = [&](const api::TrainingJob& of) {
    auto status = PlanJob(of, supply);
    if (!status) std::exit(1);
    g_options += status->gpus;
  };
  plan(job);
  std::vector<double> searched, counted;
  for (int i = 0; i < kRounds; ++i) {
    searched.push_back(Milliseconds([&] { plan(job); }));
    counted.push_back(Milliseconds([&] { plan(sized); }));
  }
  return bench::FromPairs("job_two_products_count_searched", "ms", searched, "job_count_given", counted, "lower", 0);
}

int Run(int argc, char** argv) {
  const char* json = nullptr;
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) json = argv[i + 1];
  }
  std::vector<bench::Row> rows;
  rows.push_back(Measure("catalogue_1_to_1024_gpus_7b", Everything(7'000'000'000, 1), 10));
  rows.push_back(Measure("catalogue_1_to_1024_gpus_7b_micro_batch_chosen", Everything(7'000'000'000, 0), 10));
  rows.push_back(Measure("catalogue_1_to_1024_gpus_70b", Everything(70'000'000'000, 1), 10));
  rows.push_back(MeasureJob());
  bench::PrintTable(rows);
  if (json != nullptr && !bench::WriteJson(json, rows)) {
    std::fprintf(stderr, "%s cannot be written\n", json);
    return 1;
  }
  return g_options > 0 ? 0 : 1;
}

}  // namespace
}  // namespace trainyard::sizing

int main(int argc, char** argv) { return trainyard::sizing::Run(argc, argv); }
