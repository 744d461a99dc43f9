// What the launcher is to do: the contract's environment and the command line, read and checked once.
// Thread-safety: plain values; pure functions.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "operator/base/error.h"

namespace trainyard::launch {

struct Plan {
  int nnodes = 1;
  int node_rank = 0;
  int nproc_per_node = 1;
  std::string master_addr;
  int master_port = 0;
  std::string job_uid;
  int64_t attempt = 0;
  int64_t round = 0;
  int status_port = 0;      // 0: any free one
  std::string status_host;  // "": every interface
  std::string token;        // empty: POST is refused
  std::string run_dir;
  std::string termination_log;                 // empty: none is written
  std::chrono::milliseconds grace{0};          // between SIGTERM and SIGKILL when the job is stopped
  std::chrono::milliseconds peer_grace{5000};  // the same for the peers of a failed rank, which hang in collectives
  std::vector<std::string> command;            // program and arguments, the same for every rank

  int world_size() const { return nnodes * nproc_per_node; }
  int FirstRank() const { return node_rank * nproc_per_node; }
};

using GetEnv = std::function<const char*(const char*)>;

// One node, one process and this machine are the defaults, so that the launcher also serves outside of a cluster.
// `arguments`: what follows the program's name ("--" first is skipped); empty: `default_program`.
// Error: kInvalidArgument with every problem in one line.
Result<Plan> ReadPlan(const GetEnv& get, const std::vector<std::string>& arguments, const std::string& default_program);

// "NAME=value" lines that a rank gets on top of the launcher's own environment.
std::vector<std::pair<std::string, std::string>> RankEnvironment(const Plan& plan, int local_rank, int64_t round);

}  // namespace trainyard::launch
