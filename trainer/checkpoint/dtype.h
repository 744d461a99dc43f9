// Values of tensors as numbers: reading any dtype that our checkpoints or those of others have, and turning one float
// format into another. Host byte order, which is little-endian. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "operator/base/error.h"

namespace trainyard::checkpoint {

// "F64", "F32", "F16" and "BF16".
bool IsFloat(std::string_view dtype);
// False for a dtype whose values cannot be read: the 8-bit floats.
bool HasValues(std::string_view dtype);

// `n` elements of `dtype` as doubles; exact but for whole numbers beyond 2^53. HasValues(dtype).
void ToDouble(std::string_view dtype, const void* from, int64_t n, double* to);

// `n` elements from one float format into another, rounded to nearest, ties to even (IEEE 754-2019, section 4.3.1);
// too large becomes infinity, a NaN stays one. `from` and `to` do not overlap. Error: kInvalidArgument when one of them
// is no float format.
Status ConvertFloats(std::string_view from_dtype, const void* from, int64_t n, std::string_view to_dtype, void* to);

// The first of `n` elements of a float format, from `begin` on, that is a NaN or an infinity.
std::optional<int64_t> FirstNotFinite(std::string_view dtype, const void* data, int64_t n, int64_t begin = 0);
// The first element that is finite in `from` and not in `to`, which was made of it: too large for `to_dtype`.
std::optional<int64_t> FirstOverflow(std::string_view from_dtype, const void* from, int64_t n,
                                     std::string_view to_dtype, const void* to);
// ConvertFloats, but kInvalidArgument where a number is too large for `to_dtype`; tells the number, and what to do.
Status NarrowFloats(std::string_view from_dtype, const void* from, int64_t n, std::string_view to_dtype, void* to);

}  // namespace trainyard::checkpoint
