#include "operator/cli/plan/emit.h"

#include "operator/api/names.h"
#include "operator/cli/plan/emit_job.h"
#include "operator/cli/plan/emit_tools.h"
#include "operator/cli/plan/words.h"

namespace trainyard::cli {
namespace {

using sizing::PlanOption;

Result<std::string> Torchrun(const sizing::Plan& plan, const PlanOption& o) {
  const int64_t nodes = o.per_node > 0 ? o.gpus / o.per_node : 1;
  std::string out = "#!/bin/sh\n# " + SizeName(o) + ", " + sizing::MethodOf(o) + ", " +
                    OfCapacity(o.bytes.total, o.bytes.capacity) + " per GPU.\n# The program's own part: micro batch " +
                    std::to_string(o.micro_batch) + ", " + std::to_string(o.accumulation) +
                    " micro batches per optimizer step and GPU (" + std::to_string(o.effective_batch) +
                    " sequences of " + std::to_string(plan.request.sequence_length) + " tokens in all).\n";
  if (nodes <= 1) {
    return out + "exec torchrun --standalone --nnodes=1 --nproc-per-node=" + std::to_string(o.gpus) +
           " train.py \"$@\"\n";
  }
  return out + "# On every node, with NODE_RANK from 0 to " + std::to_string(nodes - 1) +
         " and MASTER_ADDR the address of node 0.\nexec torchrun --nnodes=" + std::to_string(nodes) +
         " --nproc-per-node=" + std::to_string(o.per_node) +
         " --node-rank=\"${NODE_RANK:?}\" --rdzv-backend=static --master-addr=\"${MASTER_ADDR:?}\" "
         "--master-port=\"${MASTER_PORT:-29500}\" train.py \"$@\"\n";
}

}  // namespace

Result<std::string> Emit(const std::string& tool, const sizing::Plan& plan, const PlanInput& input) {
  if (!plan.chosen) {
    return Fail(ErrorCode::kInvalidArgument, "--emit: nothing is chosen, so there is nothing to emit: " +
                                                 (plan.not_chosen.empty() ? "no count fits" : plan.not_chosen));
  }
  const PlanOption& option = plan.options[*plan.chosen];
  if (option.product == sizing::kSimulatedProduct && tool != "trainingjob") {
    return Fail(ErrorCode::kInvalidArgument,
                "--emit: the job runs on CPU processes; trainyard run starts it, or name a GPU with --product");
  }
  if (tool != "torchrun" && plan.request.tensor_parallel * plan.request.pipeline_parallel > 1) {
    return Fail(ErrorCode::kInvalidArgument,
                "--emit: only torchrun starts a program that splits matrices or layers by itself; plan without "
                "--tensor-parallel and --pipeline-parallel");
  }
  const ToolContext context{plan.request, option, input.job ? &*input.job : nullptr};
  if (tool == "torchrun") return Torchrun(plan, option);
  if (tool == "accelerate") return AccelerateYaml(context);
  if (tool == "deepspeed") return DeepspeedJson(context);
  if (tool == "trainingjob") return TrainingJobYaml(plan, option, input);
  return Fail(ErrorCode::kInvalidArgument,
              "--emit: '" + api::Printable(tool) + "' is not torchrun, accelerate, deepspeed or trainingjob");
}

}  // namespace trainyard::cli
