// A directory of one test, removed at its end. Thread-safety: one thread.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace trainyard::cli {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "trainyard-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }
  // Writes a file and returns its path.
  std::string Write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
    return (path_ / name).string();
  }

 private:
  std::filesystem::path path_;
};

inline constexpr const char* kSmallJob = R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: tiny}
spec:
  model: {architecture: {layers: 2, hiddenSize: 32, attentionHeads: 2}}
  data: {train: [{volume: corpus, path: train.txt}]}
  training: {sequenceLength: 16, globalBatchSize: 8, steps: 10}
  gpus: {count: 2}
  checkpoint: {volume: checkpoints}
  volumes:
  - {name: corpus, persistentVolumeClaim: {claimName: corpus}}
  - {name: checkpoints, persistentVolumeClaim: {claimName: checkpoints}}
)";

}  // namespace trainyard::cli
