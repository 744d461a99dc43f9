// What each rank tells the others once in a while, for rank 0 to report: memory, and where its time went.
// Thread-safety: one thread.
#pragma once

#include <cstdint>

#include "trainer/dist/comm.h"
#include "trainer/observe/step_log.h"

namespace trainyard::loop {

class RankFigures {
 public:
  // This rank's part in a step.
  void Add(const observe::StepRecord& record);
  // The figures of all ranks since the last call, on every rank; every rank calls at the same step. `peak_bytes`: of
  // this rank's tensors so far. One all-gather of a few numbers. Throws CommError.
  observe::RankColumns Share(dist::Comm& comm, int64_t peak_bytes);

 private:
  double data_seconds_ = 0;
  double compute_seconds_ = 0;
  double communication_seconds_ = 0;
};

}  // namespace trainyard::loop
