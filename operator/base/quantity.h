// Numbers as people and Kubernetes write them. Exact 64-bit arithmetic: nothing passes through a double on the way in.
// Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "operator/base/error.h"

namespace trainyard {

// Kubernetes quantity to its base unit, rounded up: "8" -> 8, "2Gi" -> 2147483648, "1500m" -> 2, "1e3" -> 1000.
// Errors: kInvalidArgument when it does not parse, is negative or leaves 63 bits.
Result<int64_t> ParseQuantity(std::string_view text);
// The same in thousandths: "250m" -> 250, "2" -> 2000.
Result<int64_t> ParseMilliQuantity(std::string_view text);

// Parameter count: "125M", "7B", "1.1T", "7000000000". Decimal suffixes K, M, B (or G), T.
Result<int64_t> ParseCount(std::string_view text);

// Bytes for people: "112.0 GB" (powers of ten) and "104.3 GiB" (powers of two).
std::string FormatBytes(double bytes);
std::string FormatBinaryBytes(double bytes);
// Count for people: 7000000000 -> "7B", 1100048384 -> "1.10B", 3030272 -> "3.03M".
std::string FormatCount(int64_t count);

}  // namespace trainyard
