// What determinism asks of the process and of a checkpoint (docs/determinism.md). The sums are the engine's.
// Thread-safety: one thread.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "trainer/config/config.h"
#include "trainer/loop/session.h"

namespace trainyard::loop {

// Makes LibTorch take kernels whose results do not vary from run to run, for the life of the process; before the device
// is opened. Nothing for kNone.
void ChooseKernels(config::Determinism determinism);

// Warns on rank 0 when the ranks do not all compute with the same kernels. Collective; nothing for kNone.
void CompareKernels(Session& session);

// "determinism" of train_state.json: {"mode", "microBatchSize", "threads", "kernels", "libtorch", "gradientShifts"},
// the last with WorldSize.
nlohmann::ordered_json DeterminismState(const Session& session);

// Takes over the shifts of exact sums. With WorldSize, a state of another micro-batch size or number of threads is
// kExitConfiguration, since what follows would not be what it would have been; other kernels or another LibTorch are
// warned about.
Outcome<void> TakeDeterminism(Session& session, const nlohmann::json& train_state);

}  // namespace trainyard::loop
