// The families of models, behind one door. Thread-safety: functions of their arguments.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "trainer/checkpoint/model_description.h"
#include "trainer/engine/param_spec.h"
#include "trainer/engine/parameter_host.h"
#include "trainer/model/gpt2.h"
#include "trainer/model/llama.h"
#include "trainer/model/model.h"

namespace trainyard::model {

using Config = std::variant<LlamaConfig, Gpt2Config>;

Config ConfigOf(const checkpoint::ModelDescription& description);

// The parameters of a model, unit by unit. Error: std::invalid_argument for impossible sizes.
std::vector<engine::UnitSpec> Units(const Config& config);

// The model over a host that was built from Units(config); the host must outlive it.
std::unique_ptr<Model> Make(const Config& config, engine::ParameterHost& host,
                            ActivationCheckpointing checkpointing = ActivationCheckpointing::kNone);

}  // namespace trainyard::model
