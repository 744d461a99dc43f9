#include "operator/cli/plan/words.h"

#include <algorithm>

#include "operator/api/names.h"
#include "operator/cli/plan/text_table.h"

namespace trainyard::cli {
namespace {

constexpr int64_t kSmall = int64_t{2} << 30;  // bytes; below it people read MiB

}  // namespace

std::string RecomputeName(sizing::Checkpointing checkpointing) {
  switch (checkpointing) {
    case sizing::Checkpointing::kNone:
      return "None";
    case sizing::Checkpointing::kSelective:
      return "Selective";
    case sizing::Checkpointing::kFull:
      return "Full";
  }
  return "None";
}

std::string OffloadName(sizing::Offload offload) {
  switch (offload) {
    case sizing::Offload::kNone:
      return "None";
    case sizing::Offload::kCpu:
      return "CPU";
    case sizing::Offload::kNvme:
      return "NVMe";
  }
  return "None";
}

std::string OptimizerName(sizing::Optimizer optimizer) {
  switch (optimizer) {
    case sizing::Optimizer::kAdamW:
      return "AdamW";
    case sizing::Optimizer::kAdamW8bit:
      return "AdamW8bit";
    case sizing::Optimizer::kAdafactor:
      return "Adafactor";
    case sizing::Optimizer::kSgd:
      return "SGD";
  }
  return "AdamW";
}

std::string AdapterName(sizing::AdapterType adapter) {
  switch (adapter) {
    case sizing::AdapterType::kNone:
      return "None";
    case sizing::AdapterType::kLora:
      return "LoRA";
    case sizing::AdapterType::kQLora:
      return "QLoRA";
  }
  return "None";
}

std::string StrategyName(const sizing::PlanOption& option) {
  if (option.strategy != api::Strategy::kFsdp || option.replicas <= 1) {
    return std::string(api::ToString(option.strategy));
  }
  return "HSDP " + std::to_string(option.replicas) + "x" + std::to_string(option.shard_ranks);
}

std::string GpusName(const sizing::PlanOption& option) {
  const std::string count = std::to_string(option.gpus);
  if (option.per_node <= 0 || option.per_node >= option.gpus) return count;
  return count + " (" + std::to_string(option.gpus / option.per_node) + "x" + std::to_string(option.per_node) + ")";
}

std::string SizeName(const sizing::PlanOption& option) { return std::to_string(option.gpus) + " x " + option.product; }

std::string MemoryUnit::Of(int64_t value) const { return Fixed(static_cast<double>(value) / bytes, 1); }

MemoryUnit UnitOf(const sizing::Plan& plan) {
  int64_t largest = 0;
  for (const sizing::PlanOption& o : plan.options) largest = std::max(largest, o.bytes.total);
  return largest < kSmall ? MemoryUnit{1024.0 * 1024, "MiB"} : MemoryUnit{};
}

std::string OfCapacity(int64_t used, int64_t capacity) {
  const MemoryUnit unit = std::max(used, capacity) < kSmall ? MemoryUnit{1024.0 * 1024, "MiB"} : MemoryUnit{};
  return unit.Of(used) + " of " + unit.Of(capacity) + " " + unit.name;
}

std::string EstimatedFor(const sizing::PlanRequest& request) {
  if (request.bundled_trainer) return "Trainyard's trainer";
  return request.flash_attention ? "a plain eager program with flash attention"
                                 : "a plain eager program that keeps the scores of attention";
}

}  // namespace trainyard::cli
