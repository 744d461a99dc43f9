// One row of a GPU catalogue, from JSON. Private to the room. Thread-safety: pure functions.
#pragma once

#include <nlohmann/json.hpp>

#include "operator/base/error.h"
#include "operator/sizing/gpu_catalogue.h"

namespace trainyard::sizing {

// The `name` of a row. Error: kInvalidArgument when it has none, or one that no label could have.
Result<std::string> RowName(const nlohmann::json& row);

// Writes the fields that the row gives over those of `product`; aliases are added, the name stays. `is_new`: memoryMiB
// and bf16TFLOPS must be among them. Error: kInvalidArgument, "field: what is wrong".
Status ApplyRow(const nlohmann::json& row, bool is_new, GpuProduct& product);

}  // namespace trainyard::sizing
