// Reads kubeconfig files. Thread-safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "operator/base/error.h"
#include "operator/kube/config.h"

namespace trainyard::kube {

struct KubeconfigFile {
  std::string path;  // for messages, and what relative file names start from
  std::string text;
};

// The current context of the files taken together: whichever of them names a thing first wins, as kubectl has it.
// Error: kInvalidArgument that names the file and the field, also for ways to log in that need another program.
Result<Config> ParseKubeconfig(const std::vector<KubeconfigFile>& files);

// Standard base64, with or without line breaks. Error: kInvalidArgument.
Result<std::string> DecodeBase64(const std::string& text);

}  // namespace trainyard::kube
