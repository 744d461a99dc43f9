#include "operator/cli/plan/render.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "operator/api/names.h"
#include "operator/base/quantity.h"

namespace trainyard::cli {
namespace {

using nlohmann::ordered_json;
using sizing::Plan;
using sizing::PlanOption;

constexpr double kMib = 1024.0 * 1024.0;
constexpr double kGib = 1024.0 * kMib;

std::string Fixed(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", decimals, value);
  return text;
}

// 28333.3 -> "28,333".
std::string Thousands(double value) {
  std::string digits = Fixed(value, 0);
  for (size_t i = digits.size(); i > 3 + (digits[0] == '-' ? 1u : 0u);) {
    i -= 3;
    digits.insert(i, ",");
  }
  return digits;
}

// Without the dust of binary fractions: 0.9, not 0.8999999999999999.
double Tidy(double value) { return std::round(value * 1e6) / 1e6; }

ordered_json NumberOrNull(const std::optional<double>& value, bool whole) {
  if (!value) return nullptr;
  if (whole && *value == std::floor(*value) && std::abs(*value) < 1e15) return static_cast<int64_t>(*value);
  return Tidy(*value);
}

ordered_json CountOrNull(const std::optional<int64_t>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json BytesToJson(const sizing::PerGpuBytes& b) {
  return {{"weights", b.weights},     {"gradients", b.gradients},     {"master", b.master},
          {"optimizer", b.optimizer}, {"activations", b.activations}, {"logits", b.logits},
          {"buffers", b.buffers},     {"overhead", b.overhead},       {"total", b.total},
          {"capacity", b.capacity}};
}

// Columns as wide as their widest cell; text to the left, numbers to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> head) : rows_{std::move(head)} {}
  void Row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string Text(size_t left_columns) const {
    std::vector<size_t> widths(rows_[0].size());
    for (const auto& row : rows_) {
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    std::string out;
    for (const auto& row : rows_) {
      std::string line;
      for (size_t i = 0; i < row.size(); ++i) {
        const std::string pad(widths[i] - row[i].size(), ' ');
        line += (i == 0 ? "" : "  ") + (i < left_columns ? row[i] + pad : pad + row[i]);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      out += line + "\n";
    }
    return out;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string Recompute(sizing::Checkpointing checkpointing) {
  switch (checkpointing) {
    case sizing::Checkpointing::kNone:
      return "none";
    case sizing::Checkpointing::kSelective:
      return "selective";
    case sizing::Checkpointing::kFull:
      return "full";
  }
  return "none";
}

std::string Header(const Plan& plan) {
  const auto& r = plan.request;
  std::string out = plan.shape.name + ": " + Thousands(static_cast<double>(plan.shape.parameters)) +
                    " parameters, state " + FormatBytes(static_cast<double>(plan.state_bytes)) +
                    " (16 bytes per parameter), checkpoint " +
                    FormatBytes(static_cast<double>(sizing::CheckpointBytes(plan.shape.parameters))) + "\n";
  if (!plan.shape.assumption.empty()) out += "Assumed: " + plan.shape.assumption + "\n";
  out += "Per step: " + std::to_string(r.global_batch) + " sequences of " + std::to_string(r.sequence_length) +
         " tokens, " + (r.micro_batch == 0 ? "micro batch chosen" : "micro batch " + std::to_string(r.micro_batch)) +
         ", " + std::string(api::ToString(r.precision)) + "\n";
  out += r.bundled_trainer ? "Estimated for Trainyard's trainer, which recomputes no activations\n"
                           : "Estimated for a plain eager program with flash attention\n";
  return out;
}

std::string Minimums(const Plan& plan) {
  auto count = [](const std::optional<int64_t>& n) { return n ? std::to_string(*n) : std::string("-"); };
  Table table({"SMALLEST COUNT", "STATE ONLY", "TRAINING"});
  for (const auto& m : plan.minimums) table.Row({m.product, count(m.state_only), count(m.full)});
  std::string out = table.Text(1);
  // One sentence is enough where only one product is asked for; for many the table says it.
  if (plan.minimums.size() <= 2) {
    for (const auto& m : plan.minimums) {
      if (!m.difference.empty()) out += m.difference + "\n";
    }
  }
  return out;
}

bool HasHours(const Plan& plan) {
  return std::any_of(plan.options.begin(), plan.options.end(), [](const PlanOption& o) { return o.hours.has_value(); });
}

bool HasCost(const Plan& plan) {
  return std::any_of(plan.options.begin(), plan.options.end(), [](const PlanOption& o) { return o.cost.has_value(); });
}

std::string OptionTable(const Plan& plan) {
  std::vector<std::string> head = {"PRODUCT",  "STRATEGY",    "RECOMPUTE",    "FITS",      "GPUS",
                                   "PER NODE", "MICRO BATCH", "ACCUMULATION", "EFFICIENCY"};
  const bool hours = HasHours(plan);
  const bool cost = HasCost(plan);
  if (hours) head.push_back("HOURS");
  if (cost) head.push_back("COST");
  Table table(std::move(head));
  const bool whole = plan.request.round_hours;
  for (const PlanOption& o : plan.options) {
    std::vector<std::string> row = {o.product,
                                    std::string(api::ToString(o.strategy)),
                                    Recompute(o.checkpointing),
                                    o.fits ? "yes" : "no",
                                    std::to_string(o.gpus),
                                    std::to_string(o.per_node),
                                    std::to_string(o.micro_batch),
                                    std::to_string(o.accumulation),
                                    Fixed(100 * o.efficiency, 0) + "%"};
    if (hours) row.push_back(o.hours ? (whole ? Thousands(*o.hours) : Fixed(*o.hours, *o.hours < 10 ? 2 : 1)) : "-");
    if (cost) row.push_back(o.cost ? (*o.cost < 100 ? Fixed(*o.cost, 2) : Thousands(*o.cost)) : "-");
    table.Row(std::move(row));
  }
  return table.Text(4);
}

std::string ByteTable(const Plan& plan) {
  int64_t largest = 0;
  for (const PlanOption& o : plan.options) largest = std::max(largest, o.bytes.total);
  const bool small = static_cast<double>(largest) < 2 * kGib;
  const double unit = small ? kMib : kGib;
  auto cell = [&](int64_t bytes) { return Fixed(static_cast<double>(bytes) / unit, 1); };
  Table table({"PER GPU, " + std::string(small ? "MiB" : "GiB"), "WEIGHTS", "GRADIENTS", "MASTER", "OPTIMIZER",
               "ACTIVATIONS", "LOGITS", "BUFFERS", "OVERHEAD", "TOTAL", "USABLE"});
  for (const PlanOption& o : plan.options) {
    const auto& b = o.bytes;
    table.Row({std::to_string(o.gpus) + " x " + o.product, cell(b.weights), cell(b.gradients), cell(b.master),
               cell(b.optimizer), cell(b.activations), cell(b.logits), cell(b.buffers), cell(b.overhead), cell(b.total),
               cell(b.capacity)});
  }
  return table.Text(1);
}

std::string Reasons(const Plan& plan) {
  Table table({"WHY", ""});
  for (const PlanOption& o : plan.options) table.Row({std::to_string(o.gpus) + " x " + o.product, o.why});
  return table.Text(2);
}

// What the columns mean, as far as they occur.
std::string Notes(const Plan& plan) {
  bool replicas = false;
  bool fsdp = false;
  for (const PlanOption& o : plan.options) {
    (o.strategy == api::Strategy::kFsdp ? fsdp : replicas) = true;
  }
  std::string out =
      "Usable is 95 % of what the driver reports. Efficiency is a planning ceiling, or less where the links are "
      "slower.\n";
  if (!HasHours(plan)) out += "With --single-gpu-hours or --tokens it says the hours, with --price the cost.\n";
  if (plan.request.precision == api::Precision::kFp32) return out + "In FP32 weights and master are one.\n";
  if (replicas) {
    out +=
        "Gradients are kept in fp32: a whole replica (DDP) holds 18 bytes per parameter, the rule of thumb says 16.\n";
  }
  if (fsdp) out += "FSDP keeps no weights of its own: gathered units are counted under buffers.\n";
  return out;
}

}  // namespace

ordered_json PlanToJson(const Plan& plan) {
  ordered_json options = ordered_json::array();
  const bool whole = plan.request.round_hours;
  for (const PlanOption& o : plan.options) {
    options.push_back({{"product", o.product},
                       {"gpus", o.gpus},
                       {"perNode", o.per_node},
                       {"strategy", std::string(api::ToString(o.strategy))},
                       {"microBatch", o.micro_batch},
                       {"fits", o.fits},
                       {"perGPU", BytesToJson(o.bytes)},
                       {"efficiency", Tidy(o.efficiency)},
                       {"hours", NumberOrNull(o.hours, whole)},
                       {"cost", NumberOrNull(o.cost, whole)},
                       {"checkpointBytes", o.checkpoint_bytes},
                       {"why", o.why}});
  }
  return {{"model", {{"parameters", plan.shape.parameters}, {"stateBytes", plan.state_bytes}}},
          {"minimum", {{"stateOnly", CountOrNull(plan.minimum_state_only)}, {"full", CountOrNull(plan.minimum_full)}}},
          {"options", options}};
}

std::string PlanToText(const Plan& plan) {
  std::string out = Header(plan) + "\n" + Minimums(plan);
  if (plan.options.empty()) return out + "\nNo count up to the global batch fits.\n";
  return out + "\n" + OptionTable(plan) + "\n" + ByteTable(plan) + "\n" + Reasons(plan) + "\n" + Notes(plan);
}

}  // namespace trainyard::cli
