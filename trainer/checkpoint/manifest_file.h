// Loads manifest.json and train_state.json from a checkpoint directory. Thread-safety: free functions.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "trainer/checkpoint/file_system.h"
#include "trainer/checkpoint/manifest.h"

namespace trainyard::checkpoint {

// Errors: kNotFound when `path` does not exist; kDataLoss, naming the file, when the manifest is missing or wrong.
Result<Manifest> LoadManifest(const std::string& path, FileSystem& fs, int64_t& bytes_read);
// The train state, checked against size and digest of the manifest. Error: kDataLoss, naming the file.
Result<nlohmann::json> LoadTrainState(const std::string& path, const Manifest& manifest, FileSystem& fs,
                                      int64_t& bytes_read);

}  // namespace trainyard::checkpoint
