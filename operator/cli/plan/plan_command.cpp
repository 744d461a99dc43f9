#include "operator/cli/plan/plan_command.h"

#include <iostream>
#include <memory>

#include "operator/cli/exit_codes.h"
#include "operator/cli/plan/plan_flags.h"
#include "operator/cli/plan/render.h"

namespace trainyard::cli {
namespace {

int Report(const Error& error, std::ostream& err) {
  err << "trainyard plan: " << error.message << "\n";
  return ExitCodeOf(error);
}

int RunPlan(const PlanFlags& flags, std::ostream& out, std::ostream& err) {
  auto request = RequestFrom(flags);
  if (!request) return Report(request.error(), err);
  auto plan = sizing::MakePlan(*request);
  if (!plan) return Report(plan.error(), err);
  if (flags.output == "json") {
    out << PlanToJson(*plan).dump(2) << "\n";
  } else {
    out << PlanToText(*plan);
  }
  return out.flush() ? kExitOk : Report({ErrorCode::kUnavailable, "the plan could not be written to the output"}, err);
}

}  // namespace

void AddPlanCommand(CLI::App& app, int& exit_code, std::ostream& out, std::ostream& err) {
  auto flags = std::make_shared<PlanFlags>();
  CLI::App* plan =
      app.add_subcommand("plan", "Say how many GPUs a model needs, why, how long it takes and what it costs");
  plan->add_option("--model", flags->model, "Number of parameters: 125M, 7B, 1.1T, 7000000000");
  plan->add_option("--config", flags->config, "Hugging Face config.json, or the directory that holds it");
  plan->add_option("--job", flags->job, "TrainingJob (YAML); other flags win over its fields");
  plan->add_option("--product", flags->products, "GPU product, repeatable; default: every known one")->delimiter(',');
  plan->add_option("--count", flags->counts, "GPU counts to show: 2,4,8")->delimiter(',');
  plan->add_option("--per-node", flags->per_node, "GPUs per node; default: chosen");
  plan->add_option("--strategy", flags->strategy, "Auto, DDP, ZeRO1, ZeRO2 or FSDP");
  plan->add_option("--sequence-length", flags->sequence_length, "Tokens per sequence; default 4096");
  plan->add_option("--micro-batch", flags->micro_batch,
                   "Sequences per GPU and pass; 0: the largest that fits; default 1");
  plan->add_option("--global-batch", flags->global_batch, "Sequences per optimizer step; default 512");
  plan->add_option("--precision", flags->precision, "BF16 or FP32");
  plan->add_option("--single-gpu-hours", flags->single_gpu_hours, "Hours that one GPU of the first product would take");
  plan->add_option("--tokens", flags->tokens, "Tokens to train on, such as 300B; gives hours from arithmetic");
  plan->add_option("--price", flags->prices, "Price per GPU-hour, or PRODUCT=PRICE; repeatable")->delimiter(',');
  plan->add_flag("--round-hours", flags->round_hours, "Whole hours, and costs of whole hours");
  plan->add_option("-o,--output", flags->output, "text or json")->check(CLI::IsMember({"text", "json"}));
  plan->callback([flags, &exit_code, &out, &err] { exit_code = RunPlan(*flags, out, err); });
}

void AddPlanCommand(CLI::App& app, int& exit_code) { AddPlanCommand(app, exit_code, std::cout, std::cerr); }

}  // namespace trainyard::cli
