#include "operator/cli/run/scaling_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>

#include <nlohmann/json.hpp>

namespace trainyard::cli {
namespace {

using nlohmann::json;

constexpr double kGood = 0.9;  // efficiency that needs no diagnosis
constexpr double kTooGood = 1.25;

template <typename... T>
std::string Format(const char* form, T... values) {
  char text[600];
  std::snprintf(text, sizeof text, form, values...);
  return text;
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// Sums over the rounds of the ranks' figures, one value for each rank.
struct RankSums {
  std::vector<double> data, compute, wait;
  int64_t last_step = 0;

  void Add(const json& ranks) {
    const auto add = [&](std::vector<double>& sums, const char* key) {
      const auto values = ranks.at(key).get<std::vector<double>>();
      sums.resize(values.size(), 0);
      for (size_t i = 0; i < values.size(); ++i) sums[i] += values[i];
    };
    add(data, "dataSeconds");
    add(compute, "computeSeconds");
    add(wait, "communicationSeconds");
  }
};

// Ranks that run an empty micro-batch at the end, as a part of all that are run.
double Rounding(const SizeReport& size) {
  const int64_t rounds = (size.micro_batches + size.gpus - 1) / size.gpus;
  return 1 - static_cast<double>(size.micro_batches) / static_cast<double>(rounds * size.gpus);
}

std::string Explain(const SizeReport& base, const SizeReport& here, const Diagnosis& diagnosis) {
  const double lost = diagnosis.lost.at(diagnosis.cause) * 1e3;
  const double step = here.step_seconds * 1e3;
  const std::string of_step = Format("%.1f of %.1f ms per step", lost, step);
  const double ratio = static_cast<double>(here.gpus) / static_cast<double>(base.gpus);
  switch (diagnosis.cause) {
    case Cause::kNone:
      return "";
    case Cause::kData:
      return "data: ranks wait for it " + of_step +
             "; put the files on a faster volume, or on one that serves all ranks at once";
    case Cause::kCommunication:
      return "communication: " + of_step +
             " go into transfers that compute does not hide; more tokens per rank and step (training.microBatchSize, "
             "globalBatchSize), a strategy that sends less (DDP or ZeRO2 where they fit), or a faster link between the "
             "GPUs";
    case Cause::kImbalance:
      return "imbalance: ranks wait " + of_step + " for the slowest; " +
             Format("rank %d computes %.0f %% longer than the mean: see what else runs on its node", here.slowest_rank,
                    here.slowest_excess * 100);
    case Cause::kRounding:
      return Format(
                 "imbalance: %lld micro-batches do not divide among %lld ranks, so %.0f %% of the compute is empty (",
                 static_cast<long long>(here.micro_batches), static_cast<long long>(here.gpus), Rounding(here) * 100) +
             of_step + "); lower training.microBatchSize, or use a count of GPUs that divides them";
    case Cause::kCompute:
      return "compute: " + of_step +
             Format(
                 " are more than 1/%.3g of what %lld compute%s: the ranks share cores or memory, or their "
                 "micro-batches have become too small to be efficient",
                 ratio, static_cast<long long>(base.gpus), base.gpus == 1 ? "s" : "");
    case Cause::kOptimizer:
      return "optimizer: " + of_step +
             " more than its share, since every rank updates everything; shard it (ZeRO1, ZeRO2 or FSDP)";
  }
  return "";
}

}  // namespace

Result<SizeReport> ReadStepLog(std::string_view text, int64_t gpus, int64_t micro_batches) {
  SizeReport size;
  size.gpus = gpus;
  size.micro_batches = micro_batches;
  RankSums sums;
  int64_t warm_up = 0, number = 0;
  double tokens = 0;
  std::vector<json> steps;
  std::istringstream lines{std::string(text)};
  try {
    for (std::string line; std::getline(lines, line);) {
      ++number;
      json step = json::parse(line);
      const auto at = step.at("step").get<int64_t>();
      if (step.contains("loss")) size.losses[at] = step["loss"].get<double>();
      if (step.contains("ranks")) {
        if (warm_up == 0) {
          warm_up = at;
        } else {
          sums.Add(step["ranks"]);
          sums.last_step = at;
        }
      }
      steps.push_back(std::move(step));
    }
    for (const json& step : steps) {
      const auto at = step.at("step").get<int64_t>();
      if (at <= warm_up || at > sums.last_step) continue;
      ++size.steps;
      tokens += step.at("tokens").get<double>();
      size.step_seconds += step.at("stepSeconds").get<double>();
      size.optimizer += step.at("optimizerSeconds").get<double>();
    }
  } catch (const json::exception& e) {
    return Fail(ErrorCode::kDataLoss, "step log, line " + std::to_string(number) + ": " + e.what());
  }
  if (size.steps == 0 || sums.compute.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                "the step log of " + std::to_string(gpus) + " GPUs has no figures after the warm-up: run more steps");
  }
  const auto n = static_cast<double>(size.steps);
  size.tokens_per_second = tokens / size.step_seconds;
  size.step_seconds /= n;
  size.optimizer /= n;
  size.data = Mean(sums.data) / n;
  size.compute = Mean(sums.compute) / n;
  size.communication = *std::min_element(sums.wait.begin(), sums.wait.end()) / n;
  size.imbalance = std::max(0.0, Mean(sums.wait) / n - size.communication);
  const auto slowest = std::max_element(sums.compute.begin(), sums.compute.end());
  size.slowest_rank = static_cast<int>(slowest - sums.compute.begin());
  size.slowest_excess = size.compute > 0 ? *slowest / n / size.compute - 1 : 0;
  size.other = std::max(
      0.0, size.step_seconds - size.data - size.compute - size.communication - size.imbalance - size.optimizer);
  return size;
}

Diagnosis Diagnose(const SizeReport& base, const SizeReport& here) {
  Diagnosis d;
  const double ratio = static_cast<double>(here.gpus) / static_cast<double>(base.gpus);
  d.speed_up = here.tokens_per_second / base.tokens_per_second;
  d.efficiency = d.speed_up / ratio;
  const auto grown = [&](double SizeReport::* part) { return here.*part - base.*part / ratio; };
  const double rounding = here.compute * Rounding(here) - base.compute * Rounding(base) / ratio;
  d.lost = {{Cause::kData, grown(&SizeReport::data)},
            {Cause::kCompute, grown(&SizeReport::compute) - rounding},
            {Cause::kCommunication, grown(&SizeReport::communication)},
            {Cause::kImbalance, grown(&SizeReport::imbalance)},
            {Cause::kRounding, rounding},
            {Cause::kOptimizer, grown(&SizeReport::optimizer)}};
  if (d.efficiency > kTooGood) {
    d.text = Format(
        "%.0f %% is more than there is to gain: the steps with %lld were disturbed, or their model did not fit "
        "a cache; run the ladder again on a quiet machine",
        d.efficiency * 100, static_cast<long long>(base.gpus));
  }
  if (d.efficiency >= kGood || here.gpus == base.gpus) return d;
  const auto worst =
      std::max_element(d.lost.begin(), d.lost.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (worst->second <= 0) return d;
  d.cause = worst->first;
  d.text = Explain(base, here, d);
  return d;
}

LossComparison CompareLosses(const SizeReport& base, const SizeReport& here) {
  LossComparison c;
  for (const auto& [step, loss] : here.losses) {
    const auto other = base.losses.find(step);
    if (other == base.losses.end()) continue;
    ++c.steps;
    const double difference = std::abs(loss - other->second) / std::max(std::abs(other->second), 1e-12);
    if (difference > 0 && c.first_difference == 0) c.first_difference = step;
    if (difference > kSameLoss && c.parts == 0) c.parts = step;
    if (difference > c.largest) {
      c.largest = difference;
      c.largest_step = step;
    }
  }
  const auto gpus = static_cast<long long>(base.gpus);
  const auto steps = static_cast<long long>(c.steps);
  if (c.parts != 0) {
    c.text = Format("part from those of %lld at step %lld: %.9g and %.9g", gpus, static_cast<long long>(c.parts),
                    here.losses.at(c.parts), base.losses.at(c.parts));
  } else if (c.first_difference == 0) {
    c.text = Format("equal those of %lld in all nine digits over %lld steps", gpus, steps);
  } else {
    c.text = Format("equal those of %lld over %lld steps up to rounding (first at step %lld, at most %.1g of the loss)",
                    gpus, steps, static_cast<long long>(c.first_difference), c.largest);
  }
  return c;
}

std::string ScalingTable(const std::vector<SizeReport>& sizes) {
  std::string table = Format("%5s %10s %12s %9s %11s | %8s %8s %8s %10s %10s %8s\n", "GPUs", "ms/step", "tokens/s",
                             "speed-up", "efficiency", "data", "compute", "comm.", "imbalance", "optimizer", "other");
  for (const SizeReport& size : sizes) {
    const Diagnosis d = Diagnose(sizes.front(), size);
    const double percent = 100 / size.step_seconds;
    table += Format("%5lld %10.2f %12.0f %9.2f %10.0f%% | %7.1f%% %7.1f%% %7.1f%% %9.1f%% %9.1f%% %7.1f%%\n",
                    static_cast<long long>(size.gpus), size.step_seconds * 1e3, size.tokens_per_second, d.speed_up,
                    d.efficiency * 100, size.data * percent, size.compute * percent, size.communication * percent,
                    size.imbalance * percent, size.optimizer * percent, size.other * percent);
  }
  return table;
}

}  // namespace trainyard::cli
