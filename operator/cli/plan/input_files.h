// The files that a plan can start from: a TrainingJob, a Hugging Face config.json, a catalogue of GPUs.
// Thread-safety: pure functions of what the files hold.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "operator/api/training_job.h"
#include "operator/base/error.h"
#include "operator/sizing/gpu_catalogue.h"
#include "operator/sizing/shape.h"

namespace trainyard::cli {

// config.json, or the directory that holds it.
// Errors: kNotFound, kInvalidArgument (not JSON, not an architecture known here), one line with the path.
Result<sizing::ModelShape> ShapeFromConfigFile(std::filesystem::path path);

// The first TrainingJob in a YAML file, defaults applied and validated. Errors: kNotFound, kInvalidArgument; one line
// per problem of the job, each with the path.
Result<api::TrainingJob> ReadJobFile(const std::string& path);

// A catalogue in YAML (docs/sizing.md). Errors: kNotFound, kInvalidArgument with file, row and field.
Result<std::shared_ptr<const sizing::Catalogue>> ReadCatalogueFile(const std::string& path);

}  // namespace trainyard::cli
