#include "trainer/loop/remove.h"

#include <chrono>
#include <cstdio>
#include <thread>

#include "trainer/checkpoint/remove.h"
#include "trainer/contract/contract.h"
#include "trainer/loop/failure.h"

namespace trainyard::loop {
namespace {

int Say(contract::ExitCode code, const std::string& message) {
  std::fprintf(stderr, "trainyard-trainer: rank 0: %s\n", message.c_str());
  return code;
}

}  // namespace

int RemoveCheckpoints(const config::GetEnv& get, const std::string& volume, const std::string& path) {
  const char* uid = get(contract::kEnvJobUid);
  if (uid == nullptr || *uid == '\0') {
    return Say(contract::kExitConfiguration,
               std::string(contract::kEnvJobUid) + " is not set: whose checkpoints are to be removed?");
  }
  const char* given = get(contract::kEnvVolumeRoot);
  const std::string root = given != nullptr && *given != '\0' ? given : std::string(contract::kDefaultVolumeRoot);
  const std::string directory = root + "/" + volume + "/" + path;
  auto removal = checkpoint::RemoveAll(directory, uid);
  // A job that starts from these checkpoints reads them for a while. A little less than the operator waits.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(9);
  while (removal && !removal->busy.empty() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::seconds(5));
    removal = checkpoint::RemoveAll(directory, uid);
  }
  if (removal && !removal->busy.empty()) {
    return Say(contract::kExitStorage,
               "checkpoints not removed: somebody reads " + directory + "/" + removal->busy.front() + " for 9 minutes");
  }
  if (!removal) {
    const Failure failure = WriteFailure(removal.error(), "checkpoints not removed");
    return Say(failure.exit_code, failure.message);
  }
  std::printf("removed %zu checkpoints of job %s in %s\n", removal->removed.size(), uid, directory.c_str());
  for (const std::string& name : removal->left) std::printf("left %s, which is not ours\n", name.c_str());
  return contract::kExitSucceeded;
}

}  // namespace trainyard::loop
