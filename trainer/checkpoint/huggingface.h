// The families of models as Hugging Face's transformers knows them: config.json, and the names and shapes of their
// tensors. Thread-safety: plain values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/base/error.h"
#include "trainer/checkpoint/file_system.h"
#include "trainer/checkpoint/format.h"
#include "trainer/checkpoint/model_description.h"
#include "trainer/checkpoint/reader.h"

namespace trainyard::checkpoint {

// Every tensor of the model under its Hugging Face name, in the order of transformers' state_dict, as F32 of the group
// "model"; a tied head is not listed.
std::vector<TensorInfo> TensorsOf(const ModelDescription& model);

// What a checkpoint of ours holds, from its train state and its tensors, which must be exactly those of TensorsOf.
// Errors: kFailedPrecondition when the train state does not say it, or tensors are missing, surplus or of other shapes.
Result<ModelDescription> DescribeModel(const Reader& reader);

// "LlamaForCausalLM" and so on.
std::string ArchitectureName(ModelFamily family);
// "Llama" and so on, as a TrainingJob has it.
std::string FamilyName(ModelFamily family);

// torch's name of a dtype of safetensors: "bfloat16" of "BF16".
std::string TorchDtype(const std::string& dtype);

// config.json for transformers 4 and 5. `dtype` is safetensors' name of what the files hold.
nlohmann::ordered_json ConfigJson(const ModelDescription& model, const std::string& dtype);
// The inverse, for what our trainer computes exactly alike, in the spelling of transformers 4 (rope_theta and
// rope_scaling) or 5 (rope_parameters). Dropout is passed over: our trainer has none. Error: kInvalidArgument for
// another architecture, for impossible sizes, for anything that would change what the model computes and that our
// trainer does not, and for keys that nobody here knows: any of them might. The key is named, behind `where`.
Result<ModelDescription> ParseConfigJson(const nlohmann::json& config, const std::string& where = "config.json");

// The same of a file; symbolic links are followed. Errors name it; kNotFound; of the file system.
Result<ModelDescription> ReadConfigJson(const std::string& path, FileSystem& fs = PosixFileSystem());

// The member "model" of our train_state.json, by which a job knows whether a checkpoint is of its model. Options are in
// it where they are not those of a plain Llama or GPT-2.
nlohmann::ordered_json ModelIdentity(const ModelDescription& model);
// The first difference between two such members, "KEY is A there and B in the job", or wherever `here` is; empty: they
// are of one model.
std::string IdentityDifference(const nlohmann::json& there, const nlohmann::json& here,
                               const std::string& where = "in the job");

}  // namespace trainyard::checkpoint
