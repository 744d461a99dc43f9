// Exponential back-off with a cap: base, 2 base, 4 base, ... max. Pure. Thread-safety: plain values.
#pragma once

#include "operator/base/clock.h"

namespace trainyard {

struct Backoff {
  Milliseconds base{1000};
  Milliseconds max{300'000};

  // Delay before attempt number `failures` + 1; zero failures wait nothing.
  Milliseconds Delay(int failures) const;
  // The same, spread over [half, whole] by `random` in [0, 1), so that rivals do not retry in step.
  Milliseconds Jittered(int failures, double random) const;
};

}  // namespace trainyard
