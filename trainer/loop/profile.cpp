#include "trainer/loop/profile.h"

#include <chrono>
#include <string>

#include "operator/base/files.h"
#include "trainer/observe/log.h"

namespace trainyard::loop {

void ProfileWindow::Before(int64_t step) {
  const auto& profile = session_.job.training.profile;
  // A job that resumes inside the window profiles what is left of it.
  if (profile && step >= profile->from_step && step - profile->from_step < profile->steps)
    session_.watch->trace().Start();
}

void ProfileWindow::After(int64_t step) {
  const auto& profile = session_.job.training.profile;
  if (profile && session_.watch->trace().on() && step - profile->from_step + 1 >= profile->steps) Write();
}

ProfileWindow::~ProfileWindow() {
  if (session_.watch->trace().on()) Write();
}

void ProfileWindow::Write() {
  const config::Profile& profile = *session_.job.training.profile;
  const config::RankEnv& env = session_.env;
  const std::string rank = std::to_string(env.rank) + ".json";
  const std::string directory = profile.directory ? profile.directory->Resolve(env.volume_root) : env.run_dir;
  const std::string path =
      directory + (profile.directory ? "/trace-" + std::to_string(env.attempt) + "-" : "/trace-") + rank;
  const std::string json =
      session_.watch->trace().Finish(std::chrono::system_clock::now(), std::chrono::steady_clock::now());
  Status written = MakeDirectories(directory);
  if (written) written = WriteFileAtomically(path, json);
  if (!written) return observe::Warn(written.error().message + "; training goes on without its trace");
  if (env.rank == 0) observe::Info("trace written: " + path);
}

}  // namespace trainyard::loop
