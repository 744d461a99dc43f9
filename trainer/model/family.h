// The families of models, behind one door. Thread-safety: functions of their arguments.
#pragma once

#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "trainer/checkpoint/model_description.h"
#include "trainer/engine/param_spec.h"
#include "trainer/engine/parameter_host.h"
#include "trainer/model/adapter.h"
#include "trainer/model/gpt2.h"
#include "trainer/model/llama.h"
#include "trainer/model/model.h"

namespace trainyard::model {

using Config = std::variant<LlamaConfig, Gpt2Config>;

Config ConfigOf(const checkpoint::ModelDescription& description);

// The parameters of a model, unit by unit; with an adapter all of them are frozen and the adapters' come with them.
// Error: std::invalid_argument for impossible sizes, and what AddAdapters says.
std::vector<engine::UnitSpec> Units(const Config& config, const std::optional<Adapter>& adapter = std::nullopt);

// The model over a host that was built from Units(config, adapter); the host must outlive it.
std::unique_ptr<Model> Make(const Config& config, engine::ParameterHost& host,
                            ActivationCheckpointing checkpointing = ActivationCheckpointing::kNone,
                            const std::optional<Adapter>& adapter = std::nullopt);

}  // namespace trainyard::model
