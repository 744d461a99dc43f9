// The labels of one node that speak of its GPUs, believed only where they can be true: what cannot be so is named and
// left out. Private to the room. Pure. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "operator/api/snapshot.h"
#include "operator/placement/yard.h"
#include "operator/sizing/gpu_catalogue.h"

namespace trainyard::placement {

// The value of a label; empty when there is none.
const std::string& LabelOf(const api::NodeSnapshot& node, const char* key);

// The label with the product: that of GPU Feature Discovery, else that of a cloud. Empty: neither.
const std::string& ProductLabel(const api::NodeSnapshot& node);

// Fills memory, clique, link class and island; adds to `out.oddity` what cannot be so. `out.usable` is set before.
// `product`: what the product label means; null: not known.
void ReadGpuLabels(const api::NodeSnapshot& node, const sizing::GpuProduct* product, YardNode& out);

}  // namespace trainyard::placement
