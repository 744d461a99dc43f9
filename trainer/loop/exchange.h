// Small things that ranks tell each other: texts, and numbers that must be the same everywhere.
// Thread-safety: as Comm. Lost peers leave as dist::CommError.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "trainer/dist/comm.h"

namespace trainyard::loop {

// For calls in which ranks wait for each other's disks: a slow one must not look like a lost peer.
inline constexpr std::chrono::hours kStorageDeadline{2};

// In all of them a deadline of zero means the group's own.
// The texts of all ranks, in rank order, on rank 0; empty on the others.
std::vector<std::string> GatherTexts(dist::Comm& comm, const std::string& text, const std::string& label,
                                     std::chrono::milliseconds deadline = {});
// Rank 0's text, on every rank.
std::string BroadcastText(dist::Comm& comm, const std::string& text, const std::string& label,
                          std::chrono::milliseconds deadline = {});
// Sums over ranks in rank order, element by element, in place: the same bits everywhere.
void SumInOrder(dist::Comm& comm, std::vector<double>& values, const std::string& label,
                std::chrono::milliseconds deadline = {});

}  // namespace trainyard::loop
