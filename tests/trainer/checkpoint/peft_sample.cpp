#include "tests/trainer/checkpoint/peft_sample.h"

#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace trainyard::checkpoint {

nlohmann::json PeftConfig(const AdapterDescription& adapter) {
  return {{"alpha_pattern", nlohmann::json::object()},
          {"auto_mapping", nullptr},
          {"base_model_name_or_path", "somebody/model"},
          {"bias", "none"},
          {"corda_config", nullptr},
          {"eva_config", nullptr},
          {"exclude_modules", nullptr},
          {"fan_in_fan_out", false},
          {"inference_mode", true},
          {"init_lora_weights", true},
          {"layer_replication", nullptr},
          {"layers_pattern", nullptr},
          {"layers_to_transform", nullptr},
          {"loftq_config", nlohmann::json::object()},
          {"lora_alpha", adapter.alpha},
          {"lora_bias", false},
          {"lora_dropout", adapter.dropout},
          {"megatron_config", nullptr},
          {"megatron_core", "megatron.core"},
          {"modules_to_save", nullptr},
          {"peft_type", "LORA"},
          {"qalora_group_size", 16},
          {"r", adapter.rank},
          {"rank_pattern", nlohmann::json::object()},
          {"revision", nullptr},
          {"target_modules", adapter.targets},
          {"target_parameters", nullptr},
          {"task_type", "CAUSAL_LM"},
          {"trainable_token_indices", nullptr},
          {"use_dora", false},
          {"use_qalora", false},
          {"use_rslora", false}};
}

void WritePeft(const std::string& directory, const ModelDescription& model, const AdapterDescription& adapter,
               const nlohmann::json& config) {
  const auto need = [](const Status& status) {
    if (!status) throw std::runtime_error(status.error().message);
  };
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  std::ofstream(directory + "/adapter_config.json") << (config.is_null() ? PeftConfig(adapter) : config).dump(2);
  const std::vector<TensorInfo> tensors = AdapterTensorsOf(model, adapter);
  std::vector<SafetensorsTensor> theirs;
  for (const TensorInfo& t : tensors) theirs.push_back({"base_model.model." + t.name, "F32", t.global_shape, {}});
  Result<SafetensorsWriter> writer =
      SafetensorsWriter::Create(directory + "/adapter_model.safetensors", theirs, /*sharded=*/false, PosixFileSystem());
  if (!writer) throw std::runtime_error(writer.error().message);
  for (const TensorInfo& tensor : tensors) {
    const std::vector<float> values = PeftTensor(tensor);
    need(writer->Append(values.data(), static_cast<int64_t>(values.size() * sizeof(float))));
  }
  need(writer->Finish());
}

}  // namespace trainyard::checkpoint
