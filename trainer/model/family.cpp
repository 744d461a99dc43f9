#include "trainer/model/family.h"

namespace trainyard::model {
namespace {

std::vector<engine::UnitSpec> UnitsOf(const LlamaConfig& config) { return LlamaUnits(config); }
std::vector<engine::UnitSpec> UnitsOf(const Gpt2Config& config) { return Gpt2Units(config); }

std::unique_ptr<Model> MakeOf(const LlamaConfig& config, engine::ParameterHost& host, ActivationCheckpointing mode) {
  return std::make_unique<Llama>(config, host, mode);
}
std::unique_ptr<Model> MakeOf(const Gpt2Config& config, engine::ParameterHost& host, ActivationCheckpointing mode) {
  return std::make_unique<Gpt2>(config, host, mode);
}

}  // namespace

std::vector<engine::UnitSpec> Units(const Config& config) {
  return std::visit([](const auto& c) { return UnitsOf(c); }, config);
}

std::unique_ptr<Model> Make(const Config& config, engine::ParameterHost& host, ActivationCheckpointing checkpointing) {
  return std::visit([&](const auto& c) { return MakeOf(c, host, checkpointing); }, config);
}

}  // namespace trainyard::model
