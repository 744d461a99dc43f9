// Held-out loss. Thread-safety: one thread; every rank calls it at the same step.
#pragma once

#include "trainer/loop/session.h"

namespace trainyard::loop {

// Mean cross-entropy in nats per token over the first evaluation.batches micro-batches of the validation data (fewer
// when there is less data), divided among the ranks; the same batches each time, and a sum whose order does not depend
// on the world size. Requires session.validation. Failure: kExitData. Throws CommError.
Outcome<double> Evaluate(Session& session);

}  // namespace trainyard::loop
