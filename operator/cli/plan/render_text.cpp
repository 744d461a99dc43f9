#include <algorithm>

#include "operator/api/names.h"
#include "operator/base/quantity.h"
#include "operator/cli/plan/render.h"
#include "operator/cli/plan/text_table.h"
#include "operator/cli/plan/words.h"

namespace trainyard::cli {
namespace {

using sizing::Plan;
using sizing::PlanOption;

constexpr size_t kBarWidth = 8;
// So many products or fewer get a sentence each where state and training differ; of more only those that differ are
// listed.
constexpr size_t kFewProducts = 2;

std::string Percent(double share) { return Fixed(100 * share, 0); }

bool Any(const Plan& plan, bool (*has)(const PlanOption&)) {
  return std::any_of(plan.options.begin(), plan.options.end(), has);
}
bool HasHours(const Plan& plan) {
  return Any(plan, [](const PlanOption& o) { return o.hours.has_value(); });
}
bool HasCost(const Plan& plan) {
  return Any(plan, [](const PlanOption& o) { return o.cost.has_value(); });
}
bool HasOffload(const Plan& plan) {
  return Any(plan, [](const PlanOption& o) { return o.offload != sizing::Offload::kNone; });
}
bool IsTight(const PlanOption& option) { return option.fits && option.tight; }

std::string Model(const Plan& plan) {
  std::string out = plan.shape.name + ": " + Thousands(static_cast<double>(plan.shape.parameters)) + " parameters";
  const int64_t active = sizing::ActiveParameters(plan.shape);
  if (active != plan.shape.parameters) {
    out += " (" + Thousands(static_cast<double>(active)) + " active per token)";
  }
  out += ", state " + FormatBytes(static_cast<double>(plan.state_bytes));
  if (plan.state_bytes == sizing::ReferenceStateBytes(plan.shape.parameters)) out += " (16 bytes per parameter)";
  if (!plan.options.empty()) {
    out += ", checkpoint " + FormatBytes(static_cast<double>(plan.options[0].checkpoint_bytes));
  }
  return out;
}

std::string Step(const Plan& plan) {
  const auto& r = plan.request;
  std::string out = "Per step: " + std::to_string(r.global_batch) + " sequences of " +
                    std::to_string(r.sequence_length) + " tokens, " +
                    (r.micro_batch == 0 ? "micro batch chosen" : "micro batch " + std::to_string(r.micro_batch)) +
                    ", " + std::string(api::ToString(r.precision)) + ", " + OptimizerName(r.optimizer) +
                    (r.momentum > 0 ? " with momentum" : "");
  if (r.adapter.type != sizing::AdapterType::kNone) {
    out += ", " + AdapterName(r.adapter.type) + " of rank " + std::to_string(r.adapter.rank);
  }
  return out;
}

std::vector<std::string> Opening(const Plan& plan) {
  std::vector<std::string> lines = {Model(plan)};
  if (!plan.shape.assumption.empty()) lines.push_back("Assumed: " + plan.shape.assumption);
  lines.push_back(Step(plan));
  lines.push_back("Estimated for " + EstimatedFor(plan.request));
  return lines;
}

// '*' chosen, '!' does not fit, '~' fits with little to spare.
std::string Mark(const Plan& plan, size_t index) {
  if (plan.chosen && *plan.chosen == index) return "*";
  const PlanOption& option = plan.options[index];
  return !option.fits ? "!" : IsTight(option) ? "~" : " ";
}

struct OptionTable {
  Table table;
  std::vector<size_t> left;
};

OptionTable Options(const Plan& plan, const RenderOptions& options) {
  const MemoryUnit unit = UnitOf(plan);
  const bool hours = HasHours(plan);
  const bool cost = HasCost(plan);
  const bool offload = HasOffload(plan);
  const bool whole = plan.request.round_hours;
  std::vector<std::string> head = {"  PRODUCT", "GPUS", "STRATEGY", "RECOMPUTE", "BATCH", "MEMORY, " + unit.name};
  std::vector<size_t> left = {0, 2, 3, 5};
  if (offload) {
    head.insert(head.begin() + 4, "HOST");
    left = {0, 2, 3, 4, 6};
  }
  head.insert(head.end(), {"EFF. %", "SPEED"});
  if (hours) head.push_back("HOURS");
  if (cost) head.push_back(options.currency.empty() ? "COST" : "COST, " + options.currency);
  Table table(std::move(head));
  for (size_t i = 0; i < plan.options.size(); ++i) {
    const PlanOption& o = plan.options[i];
    std::vector<std::string> row = {Mark(plan, i) + " " + o.product, GpusName(o), StrategyName(o),
                                    RecomputeName(o.checkpointing)};
    if (offload) row.push_back(OffloadName(o.offload));
    row.push_back(std::to_string(o.micro_batch) + "x" + std::to_string(o.accumulation));
    row.push_back(Bar(o.bytes.total, o.bytes.capacity, kBarWidth) + " " + unit.Of(o.bytes.total) + "/" +
                  unit.Of(o.bytes.capacity));
    row.push_back(Percent(o.physical_efficiency) + "/" + Percent(o.efficiency));
    row.push_back(Fixed(o.speedup, o.speedup < 10 ? 2 : 1) + "x");
    if (hours) row.push_back(o.hours ? HoursText(*o.hours, whole) : "-");
    if (cost) row.push_back(o.cost ? CostText(*o.cost, whole) : "-");
    table.Row(std::move(row));
  }
  return {std::move(table), left};
}

// What the marks and columns mean, as far as they occur.
std::string Legend(const Plan& plan) {
  std::string out = "Key: ";
  auto add = [&](const std::string& text) { out += (out.back() == ' ' ? "" : ", ") + text; };
  if (plan.chosen) add("* chosen");
  if (Any(plan, IsTight)) add("~ fits with less than 10 % to spare");
  if (Any(plan, [](const PlanOption& o) { return !o.fits; })) add("! does not fit");
  if (HasOffload(plan)) add("host: where optimizer states live");
  add("batch: micro batch x accumulation");
  add("memory: of one GPU, used/usable");
  add("eff.: expected of the links/planned, with what no formula knows");
  return out;
}

// State only against training: a sentence each for few products, else the products where the two differ.
std::vector<std::string> Answers(const Plan& plan) {
  auto count = [](const std::optional<int64_t>& n, const std::string& product) {
    return n ? std::to_string(*n) + " x " + product : "no count of " + product;
  };
  std::vector<std::string> lines;
  if (plan.minimums.size() <= kFewProducts) {
    for (const auto& m : plan.minimums) {
      lines.push_back("State only: " + count(m.state_only, m.product) + ". Training: " + count(m.full, m.product) +
                      ".");
      if (!m.difference.empty()) lines.push_back(m.difference);
    }
    return lines;
  }
  std::string differ;
  for (const auto& m : plan.minimums) {
    const bool fewer = m.state_only && (!m.full || *m.state_only < *m.full);
    if (!fewer) continue;
    differ += (differ.empty() ? "" : ", ") + m.product + " " + (m.state_only ? std::to_string(*m.state_only) : "-") +
              " -> " + (m.full ? std::to_string(*m.full) : "-");
  }
  if (differ.empty()) {
    lines.push_back("Training needs no more GPUs than the state alone.");
  } else {
    lines.push_back("The state alone would fit on fewer GPUs than training does: " + differ + ".");
  }
  return lines;
}

struct Section {
  std::string title;
  std::vector<std::string> lines;
};

std::vector<Section> Sections(const Plan& plan, const RenderOptions& options) {
  std::vector<Section> sections;
  Section choice{"", Answers(plan)};
  if (plan.chosen) {
    const PlanOption& o = plan.options[*plan.chosen];
    choice.lines.insert(choice.lines.begin(), "Chosen: " + SizeName(o) + ", " + o.why + ".");
  } else if (!plan.not_chosen.empty()) {
    choice.lines.insert(choice.lines.begin(), "Nothing chosen: " + plan.not_chosen + ".");
  }
  if (plan.range) {
    const sizing::PlanRange& r = *plan.range;
    choice.lines.push_back("Range: " + std::to_string(r.minimum) + " to " + std::to_string(r.maximum) + " x " +
                           r.product + (r.minimum > 1 ? ". Fewer do not fit; upper end: " : ". Upper end: ") +
                           r.why_maximum + ".");
  }
  if (plan.ways_out) choice.lines.push_back(plan.ways_out->too_big + ".");
  sections.push_back(std::move(choice));
  if (plan.ways_out) {
    Section out{"WAYS OUT", {}};
    const bool whole = plan.request.round_hours;
    for (const auto& way : plan.ways_out->ways) {
      const PlanOption& o = way.option;
      std::string line = way.what;
      if (o.hours) line += ", " + HoursText(*o.hours, whole) + " h";
      if (o.cost) line += ", " + CostText(*o.cost, whole) + (options.currency.empty() ? "" : " " + options.currency);
      out.lines.push_back(line + ".");
    }
    sections.push_back(std::move(out));
  }
  if (!plan.runners_up.empty()) {
    Section runners{"WHY NOT", {}};
    for (const auto& r : plan.runners_up) runners.lines.push_back(r.why_lost);
    sections.push_back(std::move(runners));
  }
  if (!plan.warnings.empty()) sections.push_back({"WARNINGS", plan.warnings});
  if (!plan.advice.empty()) sections.push_back({"ADVICE", plan.advice});
  return sections;
}

}  // namespace

std::string PlanToText(const Plan& plan, const RenderOptions& options) {
  std::string out;
  for (const std::string& line : Opening(plan)) out += Wrapped(line, "", "  ");
  out += "\n";
  if (!plan.options.empty()) {
    const OptionTable table = Options(plan, options);
    out += table.table.Text(table.left) + Wrapped(Legend(plan), "", "  ") + "\n";
  }
  for (const Section& section : Sections(plan, options)) {
    if (section.lines.empty()) continue;
    if (!section.title.empty()) out += section.title + "\n";
    const std::string indent = section.title.empty() ? "" : "- ";
    for (const std::string& line : section.lines) out += Wrapped(line, indent, "  ");
    out += "\n";
  }
  if (options.explain) return out + ExplainToText(plan);
  return out + "--explain shows every byte.\n";
}

std::string PlanToMarkdown(const Plan& plan, const RenderOptions& options) {
  std::string out;
  for (const std::string& line : Opening(plan)) out += line + "\\\n";
  out.erase(out.size() - 2, 1);
  out += "\n";
  if (!plan.options.empty()) {
    const OptionTable table = Options(plan, options);
    out += table.table.Markdown(table.left) + "\n" + Legend(plan) + "\n\n";
  }
  for (const Section& section : Sections(plan, options)) {
    if (section.lines.empty()) continue;
    if (!section.title.empty()) out += "**" + section.title + "**\n\n";
    for (const std::string& line : section.lines) out += "- " + line + "\n";
    out += "\n";
  }
  if (options.explain) out += "```\n" + ExplainToText(plan) + "```\n";
  while (out.size() > 1 && out.substr(out.size() - 2) == "\n\n") out.pop_back();
  return out;
}

}  // namespace trainyard::cli
