// From the flags of `trainyard run` to a job and the simulated cluster that it runs in. Thread-safety: free functions.
#pragma once

#include <string>
#include <vector>

#include "operator/api/training_job.h"
#include "operator/local/local_cluster.h"
#include "trainer/checkpoint/use_lock.h"

namespace trainyard::cli {

struct RunFlags {
  std::string file;
  int nodes = 1;
  int64_t gpus_per_node = 2;
  std::string memory_per_gpu;  // quantity; empty: the machine's memory shared out
  std::string state_dir = ".trainyard";
  std::vector<std::string> volumes;  // NAME=PATH
  std::string output = "text";       // text, json
  int port = 0;
  std::vector<int64_t> ladder;  // sizes to run one after the other, in place of the job itself
  int64_t ladder_steps = 30;
};

struct RunSetup {
  api::TrainingJob job;
  local::LocalOptions cluster;
  checkpoint::UseLock checkpoints;  // no other run trains with them for as long as this lives
};

// Reads and validates the job, puts the volumes of the flags in place, and looks whether its data files are there and
// its checkpoint directory is no other run's.
// `state_dir` is absolute. Appends every error; the setup is usable only if none was.
RunSetup PrepareRun(const RunFlags& flags, const std::string& state_dir, std::vector<std::string>& errors);

}  // namespace trainyard::cli
