// Jobs for the tests of the API. Thread-safety: pure functions.
#pragma once

#include <nlohmann/json.hpp>

#include "operator/api/training_job.h"

namespace trainyard::api {

// Every field of spec, status and metadata set to something other than its default. Not meant to be valid as a whole:
// parameters and architecture exclude each other, and so do the sources of a volume.
TrainingJob FullJob();
// A small valid job for the bundled trainer, defaults applied.
TrainingJob SmallJob();
// The minimal manifests: the bundled trainer, and an image of one's own.
nlohmann::json MinimalTrainerManifest();
nlohmann::json MinimalImageManifest();

}  // namespace trainyard::api
