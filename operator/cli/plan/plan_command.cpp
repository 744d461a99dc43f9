#include "operator/cli/plan/plan_command.h"

#include <iostream>
#include <memory>
#include <string_view>

#include "operator/api/yaml.h"
#include "operator/cli/exit_codes.h"
#include "operator/cli/plan/emit.h"
#include "operator/cli/plan/plan_flags.h"
#include "operator/cli/plan/render.h"

namespace trainyard::cli {
namespace {

Result<std::string> PlanText(const PlanFlags& flags) {
  if (flags.links) {
    auto catalogue = CatalogueFrom(flags);
    if (!catalogue) return Fail(catalogue.error());
    return flags.output == "markdown" ? LinksToMarkdown(**catalogue) : LinksToText(**catalogue);
  }
  auto input = InputFrom(flags);
  if (!input) return Fail(input.error());
  auto plan = sizing::MakePlan(input->request);
  if (!plan) return Fail(plan.error());
  if (!flags.emit.empty()) return Emit(flags.emit, *plan, *input);
  const RenderOptions options{.currency = input->currency, .explain = flags.explain};
  if (flags.output == "json") return PlanToJson(*plan, options).dump(2) + "\n";
  if (flags.output == "yaml") return api::ToYaml(PlanToJson(*plan, options));
  if (flags.output == "markdown") return PlanToMarkdown(*plan, options);
  return PlanToText(*plan, options);
}

// A flag that was given as '': no flag has a use for that, and to plan as if it were not there would hide a script's
// unset variable.
Status EveryFlagHasAValue(CLI::App& plan) {
  for (CLI::App* group : plan.get_subcommands([](CLI::App* /*group*/) { return true; })) {
    for (const CLI::Option* option : group->get_options()) {
      for (const std::string& value : option->results()) {
        if (value.empty()) return Fail(ErrorCode::kInvalidArgument, option->get_name() + ": needs a value");
      }
    }
  }
  return {};
}

int RunPlan(CLI::App& plan, const PlanFlags& flags, std::ostream& out, std::ostream& err) {
  auto report = [&](const Error& error) {
    err << "trainyard plan: " << error.message << "\n";
    return ExitCodeOf(error);
  };
  if (auto ok = EveryFlagHasAValue(plan); !ok) return report(ok.error());
  auto text = PlanText(flags);
  if (!text) return report(text.error());
  out << *text;
  return kExitOk;
}

void AddModelFlags(CLI::App& plan, PlanFlags& flags) {
  auto* group = plan.add_option_group("Model");
  group->add_option("--model", flags.model, "Number of parameters: 125M, 7B, 1.1T, 7000000000");
  group->add_option("--config", flags.config, "Hugging Face directory, or its config.json");
  group->add_option("--pretrained", flags.pretrained,
                    "VOLUME:PATH of the --config directory, for a job of the bundled trainer that starts from it");
  group->add_option("--job", flags.job, "TrainingJob (YAML); other flags win over its fields");
  group->add_option("--adapter", flags.adapter, "None, LoRA or QLoRA (base in 4 bits)");
  group->add_option("--adapter-rank", flags.adapter_rank, "Rank of the adapter; default 16");
  group->add_option(
      "--adapter-targets", flags.adapter_targets,
      "Matrices that get an adapter, by the last words of their names, such as q_proj,v_proj; default all "
      "of the blocks");
  group->add_option("--optimizer", flags.optimizer, "AdamW, AdamW8bit, Adafactor or SGD");
  group->add_option("--momentum", flags.momentum, "Momentum of SGD; default 0, which keeps no state");
  group->add_option("--precision", flags.precision, "BF16 or FP32");
  group->add_option("--sequence,--sequence-length", flags.sequence, "Tokens per sequence; default 4096");
  group->add_option("--batch,--global-batch", flags.global_batch, "Sequences per optimizer step; default 512");
  group->add_option("--micro-batch", flags.micro_batch, "Sequences per GPU and pass; 0: chosen; default 1");
  group->add_flag("--no-flash-attention", flags.no_flash_attention, "The program keeps the scores of attention");
}

void AddHardwareFlags(CLI::App& plan, PlanFlags& flags) {
  auto* group = plan.add_option_group("GPUs");
  group->add_option("--product", flags.products, "GPU product, repeatable; default: every known one");
  group->add_option("--count", flags.counts, "GPU counts to show: 8, 2,4,8 or 1-8; default: the fewest that fit");
  group->add_option("--per-node", flags.per_node, "GPUs per node; default: chosen");
  group->add_option("--strategy", flags.strategy, "Auto, DDP, ZeRO1, ZeRO2, FSDP or HSDP");
  group->add_option("--offload", flags.offloads,
                    "None, CPU or NVMe: where optimizer states live; repeatable to compare");
  group->add_option("--tensor-parallel", flags.tensor_parallel, "GPUs that split each matrix; default 1");
  group->add_option("--pipeline-parallel", flags.pipeline_parallel, "GPUs that split the layers; default 1");
  group->add_option("--catalogue", flags.catalogue, "GPUs (YAML) that add to the built-in ones, or replace them");
}

void AddMoneyFlags(CLI::App& plan, PlanFlags& flags) {
  auto* group = plan.add_option_group("Hours and money");
  group->add_option("--goal", flags.goal, "Cheapest or Fastest; default Cheapest");
  group->add_option("--single-gpu-hours", flags.single_gpu_hours, "Hours that one GPU of the first product would take");
  group->add_option("--tokens", flags.tokens, "Tokens to train on, such as 300B; gives hours from arithmetic");
  group->add_option("--steps", flags.steps, "The same in optimizer steps");
  group->add_option("--price", flags.prices, "Price per GPU-hour, or PRODUCT=PRICE; repeatable");
  group->add_option("--currency", flags.currency, "Name of the currency, for display; default: the catalogue's");
  group->add_option("--max-hours", flags.max_hours, "Choose only what is done in time");
  group->add_option("--max-cost", flags.max_cost, "Choose only what costs no more");
  group->add_flag("--round-hours", flags.round_hours, "Whole hours, and costs of whole hours");
}

void AddOutputFlags(CLI::App& plan, PlanFlags& flags) {
  auto* group = plan.add_option_group("Output");
  group->add_flag("--explain", flags.explain, "Every byte: the terms, their formulas, host and disk, how sure it is");
  group->add_option("--emit", flags.emit, "The chosen plan as a file: torchrun, accelerate, deepspeed or trainingjob")
      ->check(CLI::IsMember({"torchrun", "accelerate", "deepspeed", "trainingjob"}));
  group->add_flag("--links", flags.links, "Only the table of links of every GPU product");
  group->add_option("-o,--output", flags.output, "table, json, yaml or markdown")
      ->check(CLI::IsMember({"table", "text", "json", "yaml", "markdown"}));
}

}  // namespace

std::optional<std::string> EmptyArgument(std::span<const char* const> arguments) {
  std::string_view before;
  for (std::string_view argument : arguments) {
    if (argument == "--") break;
    if (argument.size() > 3 && argument.starts_with("--") && argument.find('=') == argument.size() - 1) {
      return std::string(argument.substr(0, argument.size() - 1)) + ": needs a value";
    }
    if (argument.empty() && before.size() > 1 && before.starts_with('-')) {
      return std::string(before) + ": needs a value, and '' is none";
    }
    if (argument.empty()) return "an argument is empty ('')";
    before = argument;
  }
  return std::nullopt;
}

void AddPlanCommand(CLI::App& app, int& exit_code, std::ostream& out, std::ostream& err) {
  auto flags = std::make_shared<PlanFlags>();
  CLI::App* plan =
      app.add_subcommand("plan", "Say how many GPUs a model needs, why, how long it takes and what it costs");
  AddModelFlags(*plan, *flags);
  AddHardwareFlags(*plan, *flags);
  AddMoneyFlags(*plan, *flags);
  AddOutputFlags(*plan, *flags);
  plan->callback([plan, flags, &exit_code, &out, &err] { exit_code = RunPlan(*plan, *flags, out, err); });
}

void AddPlanCommand(CLI::App& app, int& exit_code) { AddPlanCommand(app, exit_code, std::cout, std::cerr); }

}  // namespace trainyard::cli
