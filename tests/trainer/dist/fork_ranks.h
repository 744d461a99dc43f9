// Ranks as forked processes. The parent must not have run LibTorch operators: their thread pools do not survive a fork.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace trainyard::dist {

struct RankOutcome {
  std::string text;    // what the body returned; "threw ..." for an exception
  bool ended = false;  // false: killed by a signal
  double seconds = 0;
};

// Runs body(rank) in `world` processes, each killed after a minute at most. `meanwhile` runs in the parent with their
// process ids.
std::vector<RankOutcome> ForkRanks(int world, const std::function<std::string(int rank)>& body,
                                   const std::function<void(const std::vector<pid_t>&)>& meanwhile = {});

// A TCP port that was free a moment ago.
int FreePort();

}  // namespace trainyard::dist
