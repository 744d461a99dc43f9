// trainyard-trainer: one rank of a training job. Everything it needs comes from the environment (docs/contract.md); it
// is started by trainyard-launch.
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "trainer/loop/remove.h"
#include "trainer/loop/run.h"

int main(int argc, char** argv) {
  const auto environment = [](const char* name) { return std::getenv(name); };
  if (argc == 4 && std::string_view(argv[1]) == "--remove-checkpoints") {
    return trainyard::loop::RemoveCheckpoints(environment, argv[2], argv[3]);
  }
  if (argc > 1) {
    const bool help = std::string_view(argv[1]) == "--help" || std::string_view(argv[1]) == "-h";
    (help ? std::cout : std::cerr) << "Usage: trainyard-trainer [--remove-checkpoints VOLUME PATH]\n"
                                      "One rank of a training job, configured by its environment and the resolved job "
                                      "in $TRAINYARD_JOB_FILE.\nStart ranks with trainyard-launch.\n"
                                      "--remove-checkpoints removes those of job $TRAINYARD_JOB_UID below "
                                      "$TRAINYARD_VOLUME_ROOT/VOLUME/PATH.\n";
    return help ? 0 : 2;
  }
  return trainyard::loop::Run(environment);
}
