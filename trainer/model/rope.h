// Angles of rotary positions (Su et al., 2021) with the ways to stretch them beyond the length of pretraining.
// Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/ATen.h>

#include "trainer/checkpoint/model_description.h"

namespace trainyard::model {

// Radians per position of each pair of a head of `dim` numbers: dim / 2 of them, theta^(-2i/dim) by default.
// kLinear: divided by `factor` (Chen et al., "Extending context window", 2023). kLlama3: long waves divided by it,
// those between the two limits interpolated (Llama 3.1, 2024). kYarn: a ramp between the two (Peng et al., "YaRN",
// 2023, sections 3.2 and 3.3). All as transformers' modeling_rope_utils.py has them, in fp64.
std::vector<double> RopeFrequencies(double theta, int64_t dim, const checkpoint::RopeScaling& scaling);

struct RopeTable {
  at::Tensor cos, sin;  // [positions, 1, dim / 2]; YaRN's attention factor is in them
};
// In the type and on the device of `like`.
RopeTable MakeRopeTable(double theta, int64_t dim, const checkpoint::RopeScaling& scaling, int64_t positions,
                        const at::Tensor& like);

}  // namespace trainyard::model
