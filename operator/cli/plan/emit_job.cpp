#include "operator/cli/plan/emit_job.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <nlohmann/json.hpp>

#include "operator/api/defaults.h"
#include "operator/api/json.h"
#include "operator/api/names.h"
#include "operator/api/validation.h"
#include "operator/api/yaml.h"
#include "operator/base/quantity.h"
#include "operator/cli/plan/words.h"

namespace trainyard::cli {
namespace {

using nlohmann::json;
using sizing::BlockKind;
using sizing::ModelShape;
using sizing::PlanOption;
using sizing::PlanRequest;

tl::unexpected<Error> Bad(const std::string& what) { return Fail(ErrorCode::kInvalidArgument, "--emit: " + what); }

api::OptimizerKind KindOf(sizing::Optimizer optimizer) {
  switch (optimizer) {
    case sizing::Optimizer::kAdamW:
      return api::OptimizerKind::kAdamW;
    case sizing::Optimizer::kAdamW8bit:
      return api::OptimizerKind::kAdamW8bit;
    case sizing::Optimizer::kAdafactor:
      return api::OptimizerKind::kAdafactor;
    case sizing::Optimizer::kSgd:
      return api::OptimizerKind::kSgd;
  }
  return api::OptimizerKind::kAdamW;
}

// The adapter of the plan; what does not change its size is as `before` has it.
std::optional<api::Adapter> AdapterOf(const sizing::Adapter& planned, std::optional<api::Adapter> before = {}) {
  if (planned.type == sizing::AdapterType::kNone) return std::nullopt;
  api::Adapter adapter = before.value_or(api::Adapter{});
  adapter.rank = planned.rank;
  adapter.targets = planned.targets;
  adapter.quantize_base =
      planned.type == sizing::AdapterType::kQLora ? api::QuantizeBase::kNf4 : api::QuantizeBase::kNone;
  return adapter;
}

// What the API has no field for.
Status TrainingJobCanSay(const PlanRequest& r) {
  std::string what;
  if (!r.flash_attention) what = "--no-flash-attention";
  if (!what.empty()) {
    return Bad("a TrainingJob has no field for " + what +
               ", so the operator would size it without; emit another tool's file, or plan without it");
  }
  if (r.single_gpu_hours && (r.max_hours || r.max_cost)) {
    return Bad(
        "a TrainingJob has no field for --single-gpu-hours, so the operator would hold the limits against hours "
        "of its own; plan with --steps or --tokens instead, or without limits");
  }
  return {};
}

api::Architecture ArchitectureOf(const ModelShape& m, int64_t sequence) {
  api::Architecture a;
  a.family = m.family.value_or(api::Family::kLlama);
  a.layers = m.layers;
  a.hidden_size = m.hidden;
  a.attention_heads = m.heads;
  a.kv_heads = m.kv_heads;
  a.head_size = m.head_dim;
  a.ffn_size = m.ffn;
  a.vocab_size = m.vocab;
  a.tied_embeddings = m.tied;
  a.max_positions = std::max(m.max_positions, sequence);  // rotary positions hold no memory, and fewer are refused
  return a;
}

// What of the shape no architecture says; empty when the architecture is the same model, tensor by tensor.
std::string Unsaid(const ModelShape& m, const api::Architecture& a) {
  if (m.experts > 0) return "its experts";
  if (m.block == BlockKind::kGptNeox) return "the blocks of GPT-NeoX";
  const bool all = m.block == BlockKind::kGpt2;  // its blocks have all of them
  if (m.qkv_bias != (all || a.family == api::Family::kQwen2) || m.output_bias != all || m.mlp_bias != all) {
    return "its biases";
  }
  if (m.qk_norm != (a.family == api::Family::kQwen3)) return "its norms of queries and keys";
  if (m.norms != 2) return "its " + std::to_string(m.norms) + " norms per block";
  if (m.fused_projections) return "its fused projections";
  const auto same = sizing::ShapeFromArchitecture(a);
  if (!same || same->parameters != m.parameters || sizing::BlockParameters(*same) != sizing::BlockParameters(m) ||
      sizing::RootParameters(*same) != sizing::RootParameters(m)) {
    return "all of its sizes";
  }
  return "";
}

std::string NameOf(const ModelShape& shape) {
  std::string name = "train-" + FormatCount(shape.parameters);
  for (char& c : name) {
    if (c == '.') c = '-';
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return name;
}

std::optional<int64_t> StepsOf(const PlanRequest& r) {
  if (!r.tokens) return std::nullopt;
  const double each = static_cast<double>(r.global_batch) * static_cast<double>(r.sequence_length);
  return static_cast<int64_t>(std::max(1.0, std::round(std::min(*r.tokens / each, 1e15))));
}

// The job of a file, with the plan's decisions and the flags' values, which won over the file's.
json Planned(const PlanRequest& r, const PlanOption& o, api::TrainingJob job) {
  api::Gpus& gpus = job.spec.gpus;
  gpus.count = o.gpus;
  gpus.per_node = o.per_node;
  if (o.product != sizing::kSimulatedProduct) gpus.products = {o.product};
  if (gpus.max_count > 0) gpus.max_count = std::max(gpus.max_count, o.gpus);
  gpus.min_count = std::min(gpus.min_count, o.gpus);
  gpus.goal = r.goal;
  job.spec.budget.max_hours = r.max_hours.value_or(0);
  job.spec.budget.max_cost = r.max_cost.value_or(0);
  api::Parallelism& parallelism = job.spec.parallelism;
  parallelism.strategy = sizing::StrategyOf(o);
  parallelism.offload = sizing::OffloadOf(o);
  if (parallelism.offload != api::OffloadTo::kNvme) parallelism.offload_volume.clear();
  api::Training& training = job.spec.training;
  training.micro_batch_size = o.micro_batch;
  training.activation_checkpointing = sizing::CheckpointingOf(o);
  training.sequence_length = r.sequence_length;
  training.global_batch_size = r.global_batch;
  training.precision = r.precision;
  api::Optimizer& optimizer = training.optimizer;
  if (const auto kind = KindOf(r.optimizer); kind != optimizer.name) {  // settings of the other one go
    optimizer = {.name = kind, .learning_rate = optimizer.learning_rate, .weight_decay = optimizer.weight_decay};
  }
  optimizer.momentum = r.momentum;
  job.spec.model.adapter = AdapterOf(r.adapter, job.spec.model.adapter);
  if (const auto steps = StepsOf(r)) training.steps = *steps;
  if (auto& architecture = job.spec.model.architecture) {
    architecture->max_positions = std::max(architecture->max_positions, r.sequence_length);
  }
  json object = api::JobToJson(job);
  object.erase("status");
  return object;
}

// A program to fill in, or the bundled trainer with data to fill in.
json ProgramOf(const std::optional<api::VolumeDirectory>& pretrained) {
  if (!pretrained)
    return {{"image", "registry.example.com/me/train:1"}, {"command", json::array({"torchrun", "train.py"})}};
  json volumes = json::array();
  for (const std::string& name : std::set<std::string>{"corpus", "checkpoints", pretrained->volume}) {
    volumes.push_back({{"name", name}, {"persistentVolumeClaim", {{"claimName", name}}}});
  }
  return {{"data", {{"format", "Tokens"}, {"train", {{{"volume", "corpus"}, {"path", "train.bin"}}}}}},
          {"checkpoint", {{"volume", "checkpoints"}}},
          {"volumes", std::move(volumes)}};
}

// A new job, of the model that `model` says.
json New(const sizing::Plan& plan, const PlanOption& o, json model,
         const std::optional<api::VolumeDirectory>& pretrained) {
  const PlanRequest& r = plan.request;
  json training = {{"sequenceLength", r.sequence_length},
                   {"globalBatchSize", r.global_batch},
                   {"microBatchSize", o.micro_batch},
                   {"precision", std::string(api::ToString(r.precision))},
                   {"activationCheckpointing", std::string(api::ToString(sizing::CheckpointingOf(o)))}};
  if (r.optimizer == sizing::Optimizer::kSgd) {
    training["optimizer"] = {{"name", "SGD"}, {"momentum", r.momentum}};
  } else if (r.optimizer != sizing::Optimizer::kAdamW) {
    training["optimizer"] = {{"name", OptimizerName(r.optimizer)}};
  }
  if (const auto steps = StepsOf(r)) training["steps"] = *steps;
  json gpus = {{"count", o.gpus}, {"perNode", o.per_node}, {"products", json::array({o.product})}};
  if (r.goal != api::Goal::kCheapest) gpus["goal"] = std::string(api::ToString(r.goal));
  json object = {{"apiVersion", api::kApiVersion},
                 {"kind", api::kKind},
                 {"metadata", {{"name", NameOf(plan.shape)}}},
                 {"spec",
                  {{"model", std::move(model)},
                   {"training", std::move(training)},
                   {"parallelism", {{"strategy", std::string(api::ToString(sizing::StrategyOf(o)))}}},
                   {"gpus", std::move(gpus)}}}};
  object["spec"].update(ProgramOf(pretrained));
  if (o.offload != sizing::Offload::kNone) object["spec"]["parallelism"]["offload"] = OffloadName(o.offload);
  if (r.max_hours) object["spec"]["budget"]["maxHours"] = *r.max_hours;
  if (r.max_cost) object["spec"]["budget"]["maxCost"] = *r.max_cost;
  return object;
}

// Nothing is written that the operator would refuse.
Status Check(const json& object) {
  auto job = api::JobFromJson(object);
  if (!job) return Bad("no TrainingJob: " + job.error().message);
  api::ApplyDefaults(*job);
  const std::vector<std::string> problems = api::Validate(*job);
  if (problems.empty()) return {};
  return Bad("the operator would refuse the TrainingJob: " + problems.front());
}

}  // namespace

Result<std::string> TrainingJobYaml(const sizing::Plan& plan, const PlanOption& o, const PlanInput& input) {
  const PlanRequest& r = plan.request;
  if (auto ok = TrainingJobCanSay(r); !ok) return Fail(ok.error());
  if (!input.job && r.adapter.type != sizing::AdapterType::kNone && !input.pretrained) {
    return Bad(
        "--adapter " + AdapterName(r.adapter.type) +
        " needs --config DIR and --pretrained VOLUME:PATH beside it: an adapter is trained beside the weights of "
        "a model that exists");
  }
  if (input.job) {
    const json object = Planned(r, o, *input.job);
    if (auto ok = Check(object); !ok) return Fail(ok.error());
    return api::ToYaml(object);
  }
  std::string comment =
      "# " + SizeName(o) + ", " + sizing::MethodOf(o) +
      (input.pretrained ? ". Data and volumes are yours to fill in: token files of the model's tokenizer.\n"
                        : ". The image and the command are yours to fill in: a program that trains with "
                          "this strategy.\n");
  json model = {{"parameters", plan.shape.parameters}};
  if (input.shape_from_config) {
    const api::Architecture architecture = ArchitectureOf(plan.shape, r.sequence_length);
    if (const std::string unsaid = Unsaid(plan.shape, architecture); !unsaid.empty()) {
      return Bad("spec.model.architecture cannot say " + unsaid + " (" + plan.shape.name +
                 "), so the operator would size another model; emit another tool's file, or plan with --model " +
                 FormatCount(plan.shape.parameters) + ", which is taken as a dense Llama");
    }
    if (input.pretrained && architecture.max_positions > plan.shape.max_positions) {
      return Bad("--sequence " + std::to_string(r.sequence_length) + " is more than the " +
                 std::to_string(plan.shape.max_positions) +
                 " positions that config.json says, so the trainer would refuse it");
    }
    if (architecture.max_positions > plan.shape.max_positions) {
      comment += "# maxPositions is the sequence length of this plan; config.json says " +
                 std::to_string(plan.shape.max_positions) + ".\n";
    }
    api::Spec spec;
    spec.model.architecture = architecture;
    spec.model.pretrained = input.pretrained;
    spec.model.adapter = AdapterOf(r.adapter);
    model = api::SpecToJson(spec).at("model");
  }
  const json object = New(plan, o, std::move(model), input.pretrained);
  if (auto ok = Check(object); !ok) return Fail(ok.error());
  return comment + api::ToYaml(object);
}

}  // namespace trainyard::cli
