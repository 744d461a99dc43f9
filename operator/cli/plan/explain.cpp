#include "operator/base/quantity.h"
#include "operator/cli/plan/render.h"
#include "operator/cli/plan/text_table.h"
#include "operator/cli/plan/words.h"

namespace trainyard::cli {
namespace {

using sizing::Plan;
using sizing::PlanOption;
using sizing::PlanRequest;

std::string AllBytes(const Plan& plan, const MemoryUnit& unit) {
  Table table({"PER GPU, " + unit.name, "WEIGHTS", "GRADIENTS", "MASTER", "OPTIMIZER", "ACTIVATIONS", "LOGITS",
               "BUFFERS", "OVERHEAD", "TOTAL", "USABLE"});
  for (const PlanOption& o : plan.options) {
    const auto& b = o.bytes;
    table.Row({SizeName(o), unit.Of(b.weights), unit.Of(b.gradients), unit.Of(b.master), unit.Of(b.optimizer),
               unit.Of(b.activations), unit.Of(b.logits), unit.Of(b.buffers), unit.Of(b.overhead), unit.Of(b.total),
               unit.Of(b.capacity)});
  }
  return table.Text({0});
}

bool Cut(const PlanOption& o, api::Strategy from) { return o.shard_ranks > 1 && o.strategy >= from; }

// "of each parameter, whole on every GPU", "cut over 8 GPUs" or "one of 4 parts of the model, cut over 2 GPUs".
std::string Spread(const PlanRequest& r, bool cut, const PlanOption& o) {
  const int64_t parts = r.tensor_parallel * r.pipeline_parallel;
  if (parts > 1) {
    return "one of " + std::to_string(parts) + " parts of the model" +
           (cut ? ", cut over " + std::to_string(o.shard_ranks) + " GPUs" : "");
  }
  return cut ? "cut over " + std::to_string(o.shard_ranks) + " GPUs" : "whole on every GPU";
}

std::string Weights(const PlanRequest& r, const PlanOption& o) {
  const bool bf16 = r.precision == api::Precision::kBf16;
  if (r.adapter.type == sizing::AdapterType::kQLora) {
    return "frozen base, linear layers of the blocks in 4 bits (NF4), the rest in BF16, and the adapter";
  }
  const std::string each = bf16 ? "2 bytes per parameter (BF16)" : "4 bytes per parameter (FP32, master and all)";
  if (r.adapter.type == sizing::AdapterType::kLora) return "frozen base, " + each + ", and the adapter";
  if (Cut(o, api::Strategy::kFsdp) || o.strategy == api::Strategy::kFsdp) {
    return bf16 ? "none of its own under FSDP: gathered units are counted under buffers"
                : each + ", " + Spread(r, true, o);
  }
  return each + ", " + Spread(r, false, o);
}

std::string Trained(const PlanRequest& r) {
  return r.adapter.type == sizing::AdapterType::kNone ? "parameter" : "parameter of the adapter";
}

std::string Host(const PlanOption& o) { return o.offload == sizing::Offload::kCpu ? "in host memory" : "on NVMe"; }

std::string Gradients(const PlanRequest& r, const PlanOption& o) {
  if (o.offload != sizing::Offload::kNone) return "accumulated in host memory";
  const std::string each = r.exact_sums ? "8 bytes per " + Trained(r) + " (accumulated as 64-bit integers), "
                                        : "4 bytes per " + Trained(r) + " (accumulated in FP32), ";
  return each + Spread(r, Cut(o, api::Strategy::kZero2), o);
}

std::string Master(const PlanRequest& r, const PlanOption& o) {
  if (r.precision == api::Precision::kFp32) return "none: in FP32 the weights are the master copy";
  if (o.offload != sizing::Offload::kNone) return Host(o);
  return "4 bytes per " + Trained(r) + " (FP32), " + Spread(r, Cut(o, api::Strategy::kZero1), o);
}

std::string OptimizerStates(const PlanRequest& r, const PlanOption& o) {
  if (o.offload != sizing::Offload::kNone) return Host(o);
  const std::string spread = ", " + Spread(r, Cut(o, api::Strategy::kZero1), o);
  switch (r.optimizer) {
    case sizing::Optimizer::kAdamW:
      return "8 bytes per " + Trained(r) + ", two moments in FP32" + spread;
    case sizing::Optimizer::kAdamW8bit:
      return "2 bytes per " + Trained(r) + " and a scale per 256, two moments in 8 bits" + spread;
    case sizing::Optimizer::kAdafactor:
      return "one number per row and per column of each matrix" + spread;
    case sizing::Optimizer::kSgd:
      return r.momentum > 0 ? "4 bytes per " + Trained(r) + ", the momentum" + spread
                            : "none: SGD without momentum keeps nothing";
  }
  return "";
}

std::string Activations(const Plan& plan, const PlanOption& o) {
  const PlanRequest& r = plan.request;
  const std::string stages =
      r.pipeline_parallel > 1 ? " over " + std::to_string(r.pipeline_parallel) + " stages" : std::string();
  std::string out = std::to_string(plan.shape.layers) + " blocks" + stages + ", " + std::to_string(o.micro_batch) +
                    " x " + std::to_string(r.sequence_length) + " tokens of width " + std::to_string(plan.shape.hidden);
  switch (o.checkpointing) {
    case sizing::Checkpointing::kNone:
      out += ", nothing recomputed";
      break;
    case sizing::Checkpointing::kSelective:
      out += ", matrix products kept";
      break;
    case sizing::Checkpointing::kFull:
      out += ", only the input of each block kept";
      break;
  }
  return out + (r.flash_attention ? "" : ", and scores");
}

std::string Logits(const Plan& plan, const PlanOption& o) {
  return std::to_string(o.micro_batch * plan.request.sequence_length) + " tokens x a vocabulary of " +
         std::to_string(plan.shape.vocab) +
         (plan.request.bundled_trainer ? ", in chunks" : ", and their softmax and gradient");
}

std::string Buffers(const PlanOption& o) {
  if (o.gpus == 1) return "nothing is gathered or reduced on one GPU; what the end of backward needs beyond forward";
  const bool gathers = o.strategy == api::Strategy::kFsdp;
  return std::string(gathers ? "gathered weights of a few blocks, " : "") + "gradients on their way to the other GPUs";
}

std::string Overhead(const PlanOption& o) {
  return std::string("fragmentation of the allocator, driver context") + (o.gpus > 1 ? ", communicators" : "");
}

std::string Terms(const Plan& plan, const PlanOption& o, const MemoryUnit& unit) {
  const PlanRequest& r = plan.request;
  const auto& b = o.bytes;
  Table table({"TERM", unit.name, "WHAT IT IS"});
  table.Row({"weights", unit.Of(b.weights), Weights(r, o)});
  table.Row({"gradients", unit.Of(b.gradients), Gradients(r, o)});
  table.Row({"master", unit.Of(b.master), Master(r, o)});
  table.Row({"optimizer", unit.Of(b.optimizer), OptimizerStates(r, o)});
  table.Row({"activations", unit.Of(b.activations), Activations(plan, o)});
  table.Row({"logits", unit.Of(b.logits), Logits(plan, o)});
  table.Row({"buffers", unit.Of(b.buffers), Buffers(o)});
  table.Row({"overhead", unit.Of(b.overhead), Overhead(o)});
  const double capacity = static_cast<double>(b.capacity);
  const double label = static_cast<double>(o.memory_bytes);
  table.Row({"total", unit.Of(b.total),
             "of " + unit.Of(b.capacity) + " usable" +
                 (label > 0 ? ", " + Fixed(100 * capacity / label, 0) + " % of the " + unit.Of(o.memory_bytes) +
                                  " that the driver reports"
                            : "")});
  return table.Text({0, 2});
}

std::string OutsideTheGpu(const Plan& plan, const PlanOption& o) {
  const auto bytes = [](int64_t value) { return FormatBytes(static_cast<double>(value)); };
  std::string out = "Host memory per GPU: " + bytes(o.host.pinned) + " pinned for copies";
  if (o.host.offloaded > 0) out += ", " + bytes(o.host.offloaded) + " of offloaded state";
  if (o.host.nvme > 0) out += "; NVMe per GPU: " + bytes(o.host.nvme);
  return out + ". One checkpoint: " + bytes(o.checkpoint_bytes) + ". Disk for the newest " +
         std::to_string(plan.request.keep_last) + " and one being written: " + bytes(o.host.disk) + ".";
}

std::string Time(const Plan& plan, const PlanOption& o) {
  std::string out;
  if (o.step_seconds) {
    out = "One step of " + std::to_string(o.effective_batch) + " sequences: " + Fixed(*o.step_seconds, 2) + " s";
    if (o.tokens_per_second) out += ", " + Thousands(*o.tokens_per_second) + " tokens per second on all GPUs";
    out += ". ";
  }
  if (o.mfu > 0) {
    out += "One GPU is taken to reach " + Fixed(100 * o.mfu, 0) +
           " % of its peak at this micro batch (model FLOP/s utilisation). ";
  }
  out += SizeName(o) + " are expected to keep " + Fixed(100 * o.physical_efficiency, 0) +
         " % of that by their links, and planned with " + Fixed(100 * o.efficiency, 0) + " %";
  if (plan.request.time_correction != 1) {
    out += "; hours are corrected by the measured step time, factor " + Fixed(plan.request.time_correction, 2);
  }
  return out + ".";
}

std::string HowSure(const Plan& plan) {
  std::string out =
      "How sure: parameters, state and checkpoint bytes are exact for the shape. Peaks of other people's programs that "
      "were published are met within 12 % in 14 of 16 cases, mostly from below; a plan fits in 95 % of the card's "
      "memory. ";
  out += plan.request.single_gpu_hours
             ? "Hours follow from the hours of one GPU that you gave. "
             : "Hours follow from a utilisation that differs from program to program by a quarter and more. ";
  return out + "A run of your own settles both: docs/sizing.md.";
}

}  // namespace

std::string ExplainToText(const Plan& plan) {
  if (plan.options.empty()) return "";
  const MemoryUnit unit = UnitOf(plan);
  // Where nothing is chosen, the last row comes nearest to fitting.
  const PlanOption& o = plan.options[plan.chosen.value_or(plan.options.size() - 1)];
  std::string out = AllBytes(plan, unit) + "\n";
  out += SizeName(o) + ", " + sizing::MethodOf(o) + ":\n" + Terms(plan, o, unit) + "\n";
  out += Wrapped(OutsideTheGpu(plan, o), "", "  ");
  out += Wrapped(Time(plan, o), "", "  ");
  return out + Wrapped(HowSure(plan), "", "  ");
}

}  // namespace trainyard::cli
