#include "operator/base/backoff.h"

#include <algorithm>

namespace trainyard {

Milliseconds Backoff::Delay(int failures) const {
  if (failures <= 0) return Milliseconds(0);
  Milliseconds delay = base;
  for (int i = 1; i < failures && delay < max; ++i) delay *= 2;
  return std::min(delay, max);
}

Milliseconds Backoff::Jittered(int failures, double random) const {
  auto whole = static_cast<double>(Delay(failures).count());
  return Milliseconds(static_cast<long long>(whole * (0.5 + 0.5 * random)));
}

}  // namespace trainyard
