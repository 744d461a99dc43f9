#include "operator/cli/plan/emit_tools.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "operator/api/yaml.h"
#include "operator/cli/plan/words.h"

namespace trainyard::cli {
namespace {

using nlohmann::json;
using sizing::Offload;

constexpr const char* kNvmePath = "/local_nvme";

int64_t Nodes(const sizing::PlanOption& o) { return o.per_node > 0 ? std::max<int64_t>(1, o.gpus / o.per_node) : 1; }

api::Training TrainingOf(const ToolContext& c) { return c.job != nullptr ? c.job->spec.training : api::Training{}; }

json FsdpConfig(const sizing::PlanOption& o) {
  return {{"fsdp_version", 2},
          {"fsdp_reshard_after_forward", true},
          {"fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP"},
          {"fsdp_state_dict_type", "SHARDED_STATE_DICT"},
          {"fsdp_cpu_ram_efficient_loading", true},
          {"fsdp_offload_params", o.offload == Offload::kCpu},
          {"fsdp_activation_checkpointing", o.checkpointing != sizing::Checkpointing::kNone}};
}

json AccelerateDeepspeed(const ToolContext& c) {
  const sizing::PlanOption& o = c.option;
  json config = {{"zero_stage", ZeroStage(o)},
                 {"gradient_accumulation_steps", o.accumulation},
                 {"gradient_clipping", TrainingOf(c).gradient_clip_norm},
                 {"offload_optimizer_device", "none"},
                 {"offload_param_device", "none"},
                 {"zero3_init_flag", ZeroStage(o) == 3}};
  if (o.offload == Offload::kCpu) config["offload_optimizer_device"] = "cpu";
  if (o.offload == Offload::kNvme) {
    config["offload_optimizer_device"] = "nvme";
    config["offload_optimizer_nvme_path"] = kNvmePath;
  }
  return config;
}

}  // namespace

int ZeroStage(const sizing::PlanOption& option) {
  int stage = 0;
  if (option.strategy == api::Strategy::kZero1) stage = 1;
  if (option.strategy == api::Strategy::kZero2) stage = 2;
  if (option.strategy == api::Strategy::kFsdp) stage = 3;
  if (option.offload == Offload::kCpu) stage = std::max(stage, 2);
  if (option.offload == Offload::kNvme) stage = 3;
  return stage;
}

Result<std::string> AccelerateYaml(const ToolContext& c) {
  const sizing::PlanOption& o = c.option;
  const bool fsdp = o.strategy == api::Strategy::kFsdp && o.gpus > 1 && o.offload != Offload::kNvme;
  const bool deepspeed = !fsdp && ZeroStage(o) > 0 && (o.gpus > 1 || o.offload != Offload::kNone);
  json config = {{"compute_environment", "LOCAL_MACHINE"},
                 {"debug", false},
                 {"distributed_type", fsdp         ? "FSDP"
                                      : deepspeed  ? "DEEPSPEED"
                                      : o.gpus > 1 ? "MULTI_GPU"
                                                   : "NO"},
                 {"machine_rank", 0},
                 {"main_training_function", "main"},
                 {"mixed_precision", c.request.precision == api::Precision::kBf16 ? "bf16" : "no"},
                 {"num_machines", Nodes(o)},
                 {"num_processes", o.gpus},
                 {"rdzv_backend", "static"},
                 {"same_network", true},
                 {"use_cpu", false}};
  if (fsdp) config["fsdp_config"] = FsdpConfig(o);
  if (fsdp && o.replicas > 1) {
    config["parallelism_config"] = {{"parallelism_config_dp_replicate_size", o.replicas},
                                    {"parallelism_config_dp_shard_size", o.shard_ranks}};
  }
  if (deepspeed) config["deepspeed_config"] = AccelerateDeepspeed(c);
  std::string out = "# accelerate launch --config_file THIS train.py: " + SizeName(o) + ", " + sizing::MethodOf(o) +
                    ".\n# The program's own part: batch size " + std::to_string(o.micro_batch) +
                    " per GPU and gradient_accumulation_steps=" + std::to_string(o.accumulation) + ".\n";
  if (Nodes(o) > 1) {
    config["main_process_port"] = 29500;
    out += "# On every machine, with its own --machine_rank, and --main_process_ip the address of machine 0.\n";
  }
  return out + api::ToYaml(config);
}

Result<std::string> DeepspeedJson(const ToolContext& c) {
  using nlohmann::ordered_json;
  const sizing::PlanOption& o = c.option;
  const api::Training training = TrainingOf(c);
  const bool bf16 = c.request.precision == api::Precision::kBf16;
  const int stage = ZeroStage(o);
  ordered_json zero = {{"stage", stage}};
  if (stage > 0) {
    zero["overlap_comm"] = true;
    zero["contiguous_gradients"] = true;
  }
  if (o.offload == Offload::kCpu) zero["offload_optimizer"] = {{"device", "cpu"}, {"pin_memory", true}};
  if (o.offload == Offload::kNvme) {
    zero["offload_optimizer"] = {{"device", "nvme"}, {"nvme_path", kNvmePath}, {"pin_memory", true}};
  }
  if (stage == 3) zero["stage3_gather_16bit_weights_on_model_save"] = true;
  if (stage == 3 && o.replicas > 1) zero["mics_shard_size"] = o.shard_ranks;
  ordered_json config = {{"train_batch_size", o.micro_batch * o.accumulation * o.gpus},
                         {"train_micro_batch_size_per_gpu", o.micro_batch},
                         {"gradient_accumulation_steps", o.accumulation},
                         {"gradient_clipping", training.gradient_clip_norm},
                         {"bf16", {{"enabled", bf16}}},
                         {"zero_optimization", std::move(zero)}};
  if (bf16) config["data_types"] = {{"grad_accum_dtype", "fp32"}};
  if (c.request.optimizer == sizing::Optimizer::kAdamW) {
    const api::Optimizer& adam = training.optimizer;
    config["optimizer"] = {{"type", "AdamW"},
                           {"params",
                            {{"lr", adam.learning_rate},
                             {"betas", adam.betas},
                             {"eps", adam.epsilon},
                             {"weight_decay", adam.weight_decay}}}};
  } else {
    config["zero_allow_untested_optimizer"] = true;  // the program brings its own
  }
  return config.dump(2) + "\n";
}

}  // namespace trainyard::cli
