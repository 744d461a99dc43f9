#include "tests/bench/engine/payload.h"

namespace trainyard::bench {

int64_t PayloadOfStep(const Setting& s) {
  if (s.ranks == 1) return 0;
  const int64_t owners = s.stage == 0 ? 1 : s.ranks, weight = s.bf16 ? 2 : 4;
  const auto units = model::LlamaUnits(s.model);
  int64_t bytes = 0;
  for (size_t u = 0; u < units.size(); ++u) {
    int64_t n = 0;
    for (const auto& p : units[u].params) n += (p.rows() + owners - 1) / owners * p.row_size();
    bytes += owners * n * 4 + s.ranks * 8 * static_cast<int64_t>(units[u].params.size());
    if (s.stage == 0) continue;
    const bool again = s.stage == 3 && units[u].reshard_after_forward && u + 1 < units.size();
    bytes += owners * n * weight * (again ? 2 : 1);
  }
  return bytes;
}

}  // namespace trainyard::bench
