#include "trainer/loop/rank_figures.h"

#include <sys/resource.h>

namespace trainyard::loop {
namespace {

// The highest resident set of this process so far; 0 where the kernel does not tell.
int64_t PeakResidentBytes() {
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<int64_t>(usage.ru_maxrss) * 1024 : 0;
}

}  // namespace

void RankFigures::Add(const observe::StepRecord& record) {
  data_seconds_ += record.data_seconds;
  compute_seconds_ += record.compute_seconds;
  communication_seconds_ += record.communication_seconds;
}

observe::RankColumns RankFigures::Share(dist::Comm& comm, int64_t peak_bytes) {
  // Bytes are whole numbers below 2^53: exact as doubles.
  const at::Tensor mine = at::tensor({static_cast<double>(peak_bytes), static_cast<double>(PeakResidentBytes()),
                                      data_seconds_, compute_seconds_, communication_seconds_},
                                     at::kDouble);
  *this = {};
  at::Tensor all = at::empty({comm.size(), mine.numel()}, at::kDouble);
  comm.AllGather(all, mine, {.label = "figures of the ranks"})->Wait();
  const auto table = all.accessor<double, 2>();
  observe::RankColumns columns;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const auto row = table[rank];
    columns.peak_bytes.push_back(static_cast<int64_t>(row[0]));
    columns.resident_bytes.push_back(static_cast<int64_t>(row[1]));
    columns.data_seconds.push_back(row[2]);
    columns.compute_seconds.push_back(row[3]);
    columns.communication_seconds.push_back(row[4]);
  }
  return columns;
}

}  // namespace trainyard::loop
