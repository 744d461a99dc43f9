// A model's description back from the member "model" of train_state.json. Private to the room.
// Thread-safety: pure function.
#pragma once

#include <nlohmann/json.hpp>

#include "trainer/checkpoint/model_description.h"

namespace trainyard::checkpoint {

// What ModelIdentity wrote, also before it had options; Llama where no family is said, and no maximum of positions.
// Throws nlohmann::json::exception for what is not of its making.
ModelDescription FromIdentity(const nlohmann::json& identity);

}  // namespace trainyard::checkpoint
