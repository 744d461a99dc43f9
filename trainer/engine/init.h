// Initial weights as a pure function of (seed, parameter name, element index): a rank makes only its rows, and the
// result never depends on the world size, the stage or the C library. Thread-safety: functions of their arguments.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "trainer/engine/param_spec.h"

namespace trainyard::engine {

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11).
std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Two standard normals of one Philox block by Box and Muller (1958). Elementary functions are our own series, so that
// the bits are the same everywhere.
std::array<double, 2> NormalPair(std::array<uint32_t, 4> random);

// Two numbers, evenly in [-1, 1), of one Philox block.
std::array<double, 2> UniformPair(std::array<uint32_t, 4> random);

// Key of a parameter's stream: XXH3-64 of its name under the seed.
uint64_t StreamKey(uint64_t seed, std::string_view name);

// Writes elements [lo, hi) (row-major index in the whole parameter) to `out`. Values are rounded to float in either
// type, so that float and double models start alike.
void InitElements(const ParamSpec& spec, uint64_t seed, int64_t lo, int64_t hi, float* out);
void InitElements(const ParamSpec& spec, uint64_t seed, int64_t lo, int64_t hi, double* out);

}  // namespace trainyard::engine
