// The node annotation that says which GPUs of a node are linked by NVLink, since no label does. Written from what
// nvidia-smi topo -m prints, by `trainyard topology --annotation`. Pure. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "operator/api/snapshot.h"
#include "operator/base/error.h"

namespace trainyard::placement {

inline constexpr const char* kGpuLinksAnnotation = "trainyard.dev/gpu-links";

// Its value on a node; empty: it has none.
std::string LinksNote(const api::NodeSnapshot& node);

// Indices of the GPUs of each island, ascending; a GPU without a link is an island of one.
using Islands = std::vector<std::vector<int64_t>>;

// "0-1/2-3": islands apart by '/', ranges and single GPUs in an island by '+': "0+2/1+3".
std::string IslandsText(const Islands& islands);
// The reverse. Every GPU from 0 up must be there once. Error: kInvalidArgument, one line.
Result<Islands> ParseIslands(std::string_view text);

}  // namespace trainyard::placement
