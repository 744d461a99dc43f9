// How a launcher ends: which rank's exit speaks for all of them, and the termination message that says it. PURE.
// Thread-safety: plain values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "operator/base/error.h"

namespace trainyard::launch {

// The end of one rank, in the order in which the ends were seen.
struct RankExit {
  int rank = 0;
  int code = 0;         // exit code, or 128 + signal
  int signal = 0;       // 0: it exited by itself
  bool by_us = false;   // it died of a signal that the launcher had sent
  std::string message;  // its last words
};

struct Outcome {
  int exit_code = 0;
  int rank = -1;  // the first failing rank; -1: none
  int signal = 0;
  std::string message;
};

// The first failing rank speaks for all. Two exceptions, since the order in which ends are seen is not quite the order
// of causes: a lost connection (kExitCommunication) is the echo of any other failure, and a rank that our own signal
// killed is nobody's cause. 0 when all ranks ended with 0; kExitStopped when nothing failed and at least one stopped.
Outcome Judge(const std::vector<RankExit>& exits);

// Termination JSON of the contract, at most 4,096 bytes: the status is left out and the message is cut to fit, at a
// character border. `trainer_status`: text of status.json, "" where there is none; with it a pod that nobody could ask
// in its last moments still tells where it ended.
std::string TerminationJson(const Outcome& outcome, const std::string& trainer_status);

// Writes it so that a reader sees all or nothing: a new file renamed into place, or one write into the existing file
// where a mount forbids the rename, as with Kubernetes' /dev/termination-log.
Status WriteTermination(const std::string& path, const std::string& json);

}  // namespace trainyard::launch
