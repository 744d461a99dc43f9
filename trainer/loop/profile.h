// The steps of job.training.profile, as a trace file of each rank. Thread-safety: one thread.
#pragma once

#include <cstdint>

#include "trainer/loop/session.h"

namespace trainyard::loop {

class ProfileWindow {
 public:
  // Does nothing for a job without a profile. `session` must outlive it.
  explicit ProfileWindow(Session& session) : session_(session) {}
  // Writes what there is when training ends inside the window.
  ~ProfileWindow();
  ProfileWindow(const ProfileWindow&) = delete;
  ProfileWindow& operator=(const ProfileWindow&) = delete;

  // Around each step, evaluation and save included. The file is trace-RANK.json in the run directory, or
  // trace-ATTEMPT-RANK.json in the directory of the job; one that cannot be written is warned about and no more.
  void Before(int64_t step);
  void After(int64_t step);

 private:
  void Write();
  Session& session_;
};

}  // namespace trainyard::loop
