// A pod's container as a local process: which program, with which arguments and environment.
// Thread-safety: pure functions but for looking whether programs exist.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "operator/base/error.h"
#include "operator/local/pod_directory.h"
#include "operator/local/process.h"

namespace trainyard::local {

struct ProcessContext {
  std::filesystem::path program_dir;             // of trainyard-launch and trainyard-trainer
  std::map<std::string, std::string> inherited;  // the environment that pods start from
  int cores = 1;
  int master_port = 0;  // of this attempt; all pods share one host, so that the job's own port will not do
};

// The container named `trainer`, else the first. The pod must have one.
const nlohmann::json& MainContainer(const nlohmann::json& pod);

// Errors: kInvalidArgument for what local clusters cannot run (it says what), kNotFound when the program does not
// exist.
Result<ProcessSpec> MakeProcess(const nlohmann::json& pod, const PodDirectory& directory,
                                const ProcessContext& context);

// The environment of this program without the variables that mean something to a trainer.
std::map<std::string, std::string> InheritedEnvironment();

}  // namespace trainyard::local
