// Values of a plan as its faces spell them: in JSON, in tables and in the files of other tools.
// Thread-safety: pure functions.
#pragma once

#include <string>

#include "operator/sizing/plan.h"

namespace trainyard::cli {

std::string RecomputeName(sizing::Checkpointing checkpointing);  // None, Selective, Full
std::string OffloadName(sizing::Offload offload);                // None, CPU, NVMe
std::string OptimizerName(sizing::Optimizer optimizer);          // AdamW, AdamW8bit, Adafactor, SGD
std::string AdapterName(sizing::AdapterType adapter);            // None, LoRA, QLoRA

// "FSDP", or "HSDP 2x8" where the state is cut over 8 ranks and kept twice.
std::string StrategyName(const sizing::PlanOption& option);
// "8", or "16 (2x8)" on two nodes of 8.
std::string GpusName(const sizing::PlanOption& option);
// "8 x H100-SXM".
std::string SizeName(const sizing::PlanOption& option);

// "12.3 of 22.8 GiB"; MiB where both are small.
std::string OfCapacity(int64_t used, int64_t capacity);

// The unit of every figure of memory in a plan: GiB, or MiB where all of them are small.
struct MemoryUnit {
  double bytes = 1024.0 * 1024 * 1024;
  std::string name = "GiB";
  std::string Of(int64_t value) const;  // "12.3"
};
MemoryUnit UnitOf(const sizing::Plan& plan);

// Whose memory and time it is: "Trainyard's trainer, ..." or "a plain eager program ...".
std::string EstimatedFor(const sizing::PlanRequest& request);

}  // namespace trainyard::cli
