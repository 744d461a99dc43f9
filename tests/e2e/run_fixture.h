// `trainyard run` under test: a state directory of its own, real text, a tiny model, and eyes on its processes.
// Thread-safety: one thread.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tests/trainer/launch/subprocess.h"

namespace trainyard::e2e {

using trainyard::testing::Await;
using trainyard::testing::Slurp;
using trainyard::testing::Subprocess;
using trainyard::testing::TempDir;
using trainyard::testing::WriteText;

inline const std::string kTrainyard = TRAINYARD_BIN_DIR "/trainyard";

// What the job of these tests may vary in.
struct JobText {
  int steps = 120;
  int gpus = 2;
  int every_steps = 20;
  std::string strategy = "FSDP";
  std::string determinism = "None";
  std::string more;  // further lines below spec, two spaces deep

  std::string Yaml() const {
    return "apiVersion: trainyard.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: tiny}\nspec:\n"
           "  model: {architecture: {family: Llama, layers: 2, hiddenSize: 64, attentionHeads: 4, kvHeads: 2}}\n"
           "  data:\n    format: Text\n    train: [{volume: corpus, path: train.txt}]\n"
           "    validation: [{volume: corpus, path: held-out.txt}]\n"
           "  training: {sequenceLength: 32, globalBatchSize: 8, microBatchSize: 2, steps: " +
           std::to_string(steps) +
           ", precision: FP32, optimizer: {learningRate: 0.003}, evaluation: {batches: 4}, determinism: " +
           determinism +
           "}\n"
           "  parallelism: {strategy: " +
           strategy + "}\n  gpus: {count: " + std::to_string(gpus) +
           "}\n  checkpoint: {volume: checkpoints, every: {steps: " + std::to_string(every_steps) +
           "}, keepLast: 3}\n"
           "  volumes:\n    - {name: corpus, persistentVolumeClaim: {claimName: corpus}}\n"
           "    - {name: checkpoints, persistentVolumeClaim: {claimName: checkpoints}}\n" +
           more;
  }
};

// Output and exit code of a command that ends by itself.
struct Outcome {
  int code = -1;
  std::string text;
};

class RunTest : public ::testing::Test {
 protected:
  RunTest() {
    std::filesystem::create_directories(dir_ / "volumes/corpus");
    std::filesystem::create_directories(dir_ / "volumes/checkpoints");
    std::string text = Slurp("/usr/share/common-licenses/GPL-3") + Slurp("/usr/share/common-licenses/GPL-2");
    EXPECT_GT(text.size(), 50'000u);
    WriteText(dir_ / "volumes/corpus/train.txt", text.substr(0, text.size() * 9 / 10));
    WriteText(dir_ / "volumes/corpus/held-out.txt", text.substr(text.size() * 9 / 10));
  }

  Outcome Call(std::vector<std::string> arguments, std::chrono::seconds limit = std::chrono::seconds(60)) {
    arguments.insert(arguments.begin(), kTrainyard);
    const std::string log = dir_ / ("call" + std::to_string(calls_++));
    Subprocess process(arguments, {}, log);
    const int code = process.Wait(limit);
    return {code, Slurp(log)};
  }

  std::unique_ptr<Subprocess> StartRun(const JobText& job, int nodes = 2, int gpus_per_node = 2) {
    return StartRun(job.Yaml(), nodes, gpus_per_node);
  }
  std::unique_ptr<Subprocess> StartRun(const std::string& yaml, int nodes = 2, int gpus_per_node = 2) {
    WriteText(dir_ / "job.yaml", yaml);
    log_ = dir_ / ("run" + std::to_string(calls_++));
    return std::make_unique<Subprocess>(
        std::vector<std::string>{kTrainyard, "run", dir_ / "job.yaml", "--nodes", std::to_string(nodes),
                                 "--gpus-per-node", std::to_string(gpus_per_node), "--state-dir", dir_.path(), "-o",
                                 "json"},
        Subprocess::Environment{{"OMP_NUM_THREADS", "1"}}, log_);
  }

  // Events that the run has told so far.
  std::vector<nlohmann::json> Events(const std::string& kind = "") const {
    std::vector<nlohmann::json> events;
    std::istringstream lines(Slurp(log_));
    for (std::string line; std::getline(lines, line);) {
      auto json = nlohmann::json::parse(line, nullptr, false);
      if (json.is_object() && (kind.empty() || json.value("event", "") == kind)) events.push_back(std::move(json));
    }
    return events;
  }

  // Newest step that rank 0 of any pod has logged.
  int64_t LoggedStep() const {
    int64_t step = 0;
    std::error_code ignored;
    for (const auto& pod : std::filesystem::directory_iterator(dir_ / "pods", ignored)) {
      std::istringstream lines(Slurp(pod.path() / "run/steps.jsonl"));
      for (std::string line; std::getline(lines, line);) {
        auto json = nlohmann::json::parse(line, nullptr, false);
        if (json.is_object()) step = std::max(step, json["step"].get<int64_t>());
      }
    }
    return step;
  }

  // Process ids of the ranks of this run's trainers.
  std::vector<pid_t> Trainers(const std::string& rank = "") const {
    std::vector<pid_t> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.empty() || !std::isdigit(static_cast<unsigned char>(name[0]))) continue;
      if (Slurp(entry.path() / "comm").rfind("trainyard-train", 0) != 0) continue;
      const std::string environment = '\0' + Slurp(entry.path() / "environ");
      if (environment.find(dir_.path()) == std::string::npos) continue;
      if (!rank.empty() && environment.find(std::string(1, '\0') + "RANK=" + rank + '\0') == std::string::npos)
        continue;
      found.push_back(std::atoi(name.c_str()));
    }
    return found;
  }

  // The job as the run left it.
  nlohmann::json FinalStatus() const {
    auto job = nlohmann::json::parse(Slurp(dir_ / "jobs/default/tiny.json"), nullptr, false);
    return job.is_object() ? job["status"] : nlohmann::json::object();
  }

  // Parameter hash after `job` ran to its end in this directory.
  std::string HashOf(const JobText& job) {
    auto run = StartRun(job);
    EXPECT_EQ(run->Wait(std::chrono::seconds(180)), 0) << run->Log();
    return FinalStatus()["progress"].value("parameterHash", "");
  }

  // Forgets what earlier runs left, so that the next one starts from nothing.
  void Clean() {
    std::filesystem::remove_all(dir_ / "volumes/checkpoints/tiny");
    std::filesystem::remove_all(dir_ / "pods");
    std::filesystem::remove_all(dir_ / "jobs");
  }

  TempDir dir_;
  std::string log_;
  int calls_ = 0;
};

}  // namespace trainyard::e2e
