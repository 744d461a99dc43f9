// A tiny job on real text, run by the real launcher and trainer: one directory with volumes, and a fresh run directory
// for each attempt, as pods have. Thread-safety: one thread.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/trainer/launch/subprocess.h"
#include "trainer/contract/contract.h"

namespace trainyard::loop {

using trainyard::testing::Await;
using trainyard::testing::HttpAsk;
using trainyard::testing::HttpBody;
using trainyard::testing::Slurp;
using trainyard::testing::Subprocess;
using trainyard::testing::TempDir;
using trainyard::testing::WriteText;

// The licence texts that every Debian machine has, repeated files (symbolic links) left out.
inline std::string RealText() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator("/usr/share/common-licenses")) {
    if (!entry.is_symlink() && entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::string text;
  for (const std::string& file : files) text += Slurp(file);
  return text;
}

class JobTest : public ::testing::Test {
 protected:
  JobTest() {
    const std::string text = RealText();
    std::filesystem::create_directories(dir_ / "volumes/corpus");
    std::filesystem::create_directories(dir_ / "volumes/checkpoints");
    WriteText(dir_ / "volumes/corpus/train.txt", text.substr(0, text.size() * 9 / 10));
    WriteText(dir_ / "volumes/corpus/valid.txt", text.substr(text.size() * 9 / 10));
    job_ = {{"contract", 1},
            {"job", {{"namespace", "default"}, {"name", "tiny"}, {"uid", "uid-1"}}},
            {"model",
             {{"family", "Llama"},
              {"layers", 2},
              {"hiddenSize", 32},
              {"attentionHeads", 4},
              {"kvHeads", 2},
              {"ffnSize", 80},
              {"vocabSize", 256},
              {"tiedEmbeddings", true},
              {"maxPositions", 64},
              {"ropeTheta", 10000.0},
              {"normEpsilon", 1e-5}}},
            {"data",
             {{"format", "Text"},
              {"train", {{{"volume", "corpus"}, {"path", "train.txt"}}}},
              {"validation", {{{"volume", "corpus"}, {"path", "valid.txt"}}}}}},
            {"training",
             {{"device", "CPU"},
              {"sequenceLength", 32},
              {"globalBatchSize", 8},
              {"microBatchSize", 2},
              {"steps", 60},
              {"precision", "FP32"},
              {"optimizer",
               {{"name", "AdamW"},
                {"learningRate", 0.003},
                {"betas", {0.9, 0.95}},
                {"epsilon", 1e-8},
                {"weightDecay", 0.1}}},
              {"schedule", {{"type", "Cosine"}, {"warmupSteps", 5}, {"minLearningRateRatio", 0.1}}},
              {"gradientClipNorm", 1.0},
              {"evaluation", {{"everySteps", 25}, {"batches", 4}}},
              {"seed", 1234}}},
            {"parallelism", {{"strategy", "FSDP"}}},
            {"checkpoint",
             {{"volume", "checkpoints"},
              {"path", "tiny"},
              {"everySteps", 10},
              {"keepLast", 3},
              {"resume", "Latest"},
              {"resumeStep", 0}}}};
  }

  // One attempt under way.
  struct Attempt {
    std::string run_dir;
    std::unique_ptr<Subprocess> process;

    std::string File(const std::string& name) const { return run_dir + "/" + name; }
    nlohmann::json StatusFile() const { return nlohmann::json::parse(Slurp(File("status.json")), nullptr, false); }
    // Step lines so far; a line that is being written is left out.
    std::vector<nlohmann::json> Steps() const {
      std::vector<nlohmann::json> steps;
      std::istringstream lines(Slurp(File("steps.jsonl")));
      for (std::string line; std::getline(lines, line);) {
        auto json = nlohmann::json::parse(line, nullptr, false);
        if (json.is_object()) steps.push_back(std::move(json));
      }
      return steps;
    }
    int64_t LastStep() const {
      const auto steps = Steps();
      return steps.empty() ? 0 : steps.back()["step"].get<int64_t>();
    }
    // Waits until `step` is done; false when it ends before.
    bool AwaitStep(int64_t step) {
      return Await([&] { return LastStep() >= step || !process->Running(); }) && LastStep() >= step;
    }
    int Port() const { return std::atoi(Slurp(File("status.port")).c_str()); }
    // Process id of a rank as the launcher's status tells it; 0 when it cannot be asked.
    pid_t PidOf(int rank) const {
      const auto status = nlohmann::json::parse(HttpBody(HttpAsk(Port(), "GET", "/status")), nullptr, false);
      if (!status.is_object()) return 0;
      for (const auto& entry : status["launcher"]["ranks"]) {
        if (entry["rank"] == rank) return entry.value("pid", 0);
      }
      return 0;
    }
    nlohmann::json Termination() const { return nlohmann::json::parse(Slurp(File("end")), nullptr, false); }
  };

  // Starts attempt `attempt` at `world` ranks with the job as it is now.
  Attempt Start(int world, int attempt, Subprocess::Environment more = {}) {
    Attempt started;
    started.run_dir = dir_ / ("run" + std::to_string(runs_++));
    std::filesystem::create_directories(started.run_dir);
    WriteText(started.File("job.json"), job_.dump());
    Subprocess::Environment env = {{"NNODES", "1"},
                                   {"NODE_RANK", "0"},
                                   {"NPROC_PER_NODE", std::to_string(world)},
                                   {"MASTER_ADDR", "127.0.0.1"},
                                   {"MASTER_PORT", std::to_string(FreePort())},
                                   {"OMP_NUM_THREADS", "1"},
                                   {"TRAINYARD_JOB_UID", job_["job"]["uid"].get<std::string>()},
                                   {"TRAINYARD_ATTEMPT", std::to_string(attempt)},
                                   {"TRAINYARD_JOB_FILE", started.File("job.json")},
                                   {"TRAINYARD_VOLUME_ROOT", dir_ / "volumes"},
                                   {"TRAINYARD_RUN_DIR", started.run_dir},
                                   {"TRAINYARD_STATUS_PORT", "0"},
                                   {"TRAINYARD_TERMINATION_LOG", started.File("end")},
                                   {"TRAINYARD_TOKEN", "secret"}};
    for (auto& [name, value] : more) env[name] = value;
    started.process = std::make_unique<Subprocess>(std::vector<std::string>{TRAINYARD_BIN_DIR "/trainyard-launch"}, env,
                                                   started.File("log"));
    return started;
  }

  // Runs one attempt to its end; its exit code must be `expected`.
  Attempt RunToEnd(int world, int attempt, int expected = contract::kExitSucceeded) {
    Attempt run = Start(world, attempt);
    EXPECT_EQ(run.process->Wait(), expected) << run.process->Log();
    return run;
  }

  // Runs the job undisturbed on a checkpoint path of its own.
  Attempt Undisturbed(int world) {
    const nlohmann::json checkpoint = job_["checkpoint"];
    job_["checkpoint"]["path"] = "undisturbed";
    Attempt run = RunToEnd(world, 1);
    job_["checkpoint"] = checkpoint;
    return run;
  }

  static int FreePort() {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
    close(fd);
    return ntohs(address.sin_port);
  }

  std::string CheckpointRoot() const { return dir_ / "volumes/checkpoints/tiny"; }

  TempDir dir_;
  nlohmann::json job_;
  int runs_ = 0;
};

// Loss of each step as the log has it; a later line of the same step replaces an earlier one.
inline std::map<int64_t, std::string> Losses(const std::vector<nlohmann::json>& steps) {
  std::map<int64_t, std::string> losses;
  for (const auto& step : steps) losses[step["step"].get<int64_t>()] = step["loss"].dump();
  return losses;
}

}  // namespace trainyard::loop
