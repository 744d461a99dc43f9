// Small things that ranks tell each other: texts, and numbers that must be the same everywhere.
// Thread-safety: as Comm. Lost peers leave as dist::CommError.
#pragma once

#include <string>
#include <vector>

#include "trainer/dist/comm.h"

namespace trainyard::loop {

// The texts of all ranks, in rank order, on rank 0; empty on the others.
std::vector<std::string> GatherTexts(dist::Comm& comm, const std::string& text, const std::string& label);
// Rank 0's text, on every rank.
std::string BroadcastText(dist::Comm& comm, const std::string& text, const std::string& label);
// Sums over ranks in rank order, element by element, in place: the same bits everywhere.
void SumInOrder(dist::Comm& comm, std::vector<double>& values, const std::string& label);

}  // namespace trainyard::loop
