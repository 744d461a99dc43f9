// Adapters in PEFT's layout, as other programs write them. Thread-safety: free functions.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/checkpoint/adapter.h"
#include "trainer/checkpoint/safetensors_file.h"

namespace trainyard::checkpoint {

// Element i of a tensor of such an adapter: a whole number from -5 to 5, so that sums are exact.
inline float PeftValue(const std::string& name, int64_t i) {
  return static_cast<float>((i * 7 + static_cast<int64_t>(name.size()) * 3 + name.back() + i / 5) % 11 - 5);
}
inline std::vector<float> PeftTensor(const TensorInfo& tensor) {
  std::vector<float> values(static_cast<size_t>(*ElementCount(tensor.global_shape)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = PeftValue(tensor.name, static_cast<int64_t>(i));
  return values;
}
// adapter_config.json as PEFT 0.18 writes it.
nlohmann::json PeftConfig(const AdapterDescription& adapter);
// Writes `directory`; `config` in place of PeftConfig.
void WritePeft(const std::string& directory, const ModelDescription& model, const AdapterDescription& adapter,
               const nlohmann::json& config = {});

}  // namespace trainyard::checkpoint
