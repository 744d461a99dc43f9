#include "operator/cli/plan/emit.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "operator/api/json.h"
#include "operator/api/names.h"
#include "operator/api/yaml.h"
#include "operator/base/quantity.h"
#include "operator/cli/plan/emit_tools.h"
#include "operator/cli/plan/words.h"

namespace trainyard::cli {
namespace {

using nlohmann::json;
using sizing::PlanOption;
using sizing::PlanRequest;

// What the API has no field for.
Status TrainingJobCanSay(const PlanRequest& r, const PlanOption& o) {
  std::string what;
  if (r.adapter.type != sizing::AdapterType::kNone) what = "--adapter " + AdapterName(r.adapter.type);
  if (r.optimizer != sizing::Optimizer::kAdamW) what = "--optimizer " + OptimizerName(r.optimizer);
  if (o.offload != sizing::Offload::kNone) what = "--offload " + OffloadName(o.offload);
  if (what.empty()) return {};
  return Fail(ErrorCode::kInvalidArgument, "--emit: a TrainingJob has no field for " + what +
                                               ", so the operator would size it without; emit another "
                                               "tool's file, or plan without it");
}

json GpusOf(const PlanOption& o) {
  return {{"count", o.gpus}, {"perNode", o.per_node}, {"products", json::array({o.product})}};
}

std::string NameOf(const sizing::ModelShape& shape) {
  std::string name = "train-" + FormatCount(shape.parameters);
  for (char& c : name) {
    if (c == '.') c = '-';
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return name;
}

Result<std::string> TrainingJobYaml(const sizing::Plan& plan, const PlanOption& o, const api::TrainingJob* job) {
  const PlanRequest& r = plan.request;
  if (auto ok = TrainingJobCanSay(r, o); !ok) return Fail(ok.error());
  const std::string strategy(api::ToString(o.strategy));
  if (job != nullptr) {
    api::TrainingJob planned = *job;
    planned.spec.gpus.count = o.gpus;
    planned.spec.gpus.per_node = o.per_node;
    planned.spec.gpus.products = {o.product};
    if (o.product == sizing::kSimulatedProduct) planned.spec.gpus.products = job->spec.gpus.products;
    planned.spec.parallelism.strategy = o.strategy;
    planned.spec.training.micro_batch_size = o.micro_batch;
    planned.spec.training.sequence_length = r.sequence_length;
    planned.spec.training.global_batch_size = r.global_batch;
    planned.spec.training.precision = r.precision;
    json object = api::JobToJson(planned);
    object.erase("status");
    return api::ToYaml(object);
  }
  json training = {{"sequenceLength", r.sequence_length},
                   {"globalBatchSize", r.global_batch},
                   {"microBatchSize", o.micro_batch},
                   {"precision", std::string(api::ToString(r.precision))}};
  if (r.tokens) {
    const double each = static_cast<double>(r.global_batch) * static_cast<double>(r.sequence_length);
    training["steps"] = static_cast<int64_t>(std::max(1.0, std::round(std::min(*r.tokens / each, 1e15))));
  }
  const json object = {{"apiVersion", api::kApiVersion},
                       {"kind", api::kKind},
                       {"metadata", {{"name", NameOf(plan.shape)}}},
                       {"spec",
                        {{"model", {{"parameters", plan.shape.parameters}}},
                         {"training", std::move(training)},
                         {"parallelism", {{"strategy", strategy}}},
                         {"gpus", GpusOf(o)},
                         {"image", "registry.example.com/me/train:1"},
                         {"command", json::array({"torchrun", "train.py"})}}}};
  return "# " + SizeName(o) + ", " + sizing::MethodOf(o) +
         ". The image and the command are yours to fill in: a program that trains with this strategy.\n" +
         api::ToYaml(object);
}

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

Result<std::string> Emit(const std::string& tool, const sizing::Plan& plan, const api::TrainingJob* job) {
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
  const ToolContext context{plan.request, option, job};
  if (tool == "torchrun") return Torchrun(plan, option);
  if (tool == "accelerate") return AccelerateYaml(context);
  if (tool == "deepspeed") return DeepspeedJson(context);
  if (tool == "trainingjob") return TrainingJobYaml(plan, option, job);
  return Fail(ErrorCode::kInvalidArgument,
              "--emit: '" + api::Printable(tool) + "' is not torchrun, accelerate, deepspeed or trainingjob");
}

}  // namespace trainyard::cli
