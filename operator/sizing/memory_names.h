// Names of the choices that memory depends on, as flags, files and tables write them. Thread-safety: pure functions.
#pragma once

#include <string_view>

#include "operator/base/error.h"
#include "operator/sizing/memory_input.h"

namespace trainyard::sizing {

std::string_view ToString(Optimizer optimizer);          // AdamW, AdamW8bit, Adafactor, SGD
std::string_view ToString(AdapterType type);             // None, LoRA, QLoRA
std::string_view ToString(Offload offload);              // None, CPU, NVMe
std::string_view ToString(Checkpointing checkpointing);  // None, Selective, Full

// The way back, ignoring case. Errors: kInvalidArgument, listing the names there are.
Result<Optimizer> ParseOptimizer(std::string_view name);
Result<AdapterType> ParseAdapterType(std::string_view name);
Result<Offload> ParseOffload(std::string_view name);
Result<Checkpointing> ParseCheckpointing(std::string_view name);

}  // namespace trainyard::sizing
