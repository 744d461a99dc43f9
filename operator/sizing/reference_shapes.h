// The published models that stand for a bare number of parameters.
// Thread-safety: constant data.
#pragma once

#include <vector>

#include "operator/sizing/shape.h"

namespace trainyard::sizing {

// By size; `parameters` is the exact count of the published model.
const std::vector<ModelShape>& ReferenceShapes();

}  // namespace trainyard::sizing
