#include "trainer/checkpoint/dtype.h"

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>

#include "trainer/checkpoint/format.h"

namespace trainyard::checkpoint {
namespace {

float FromBf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

float FromF16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu, fraction = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  const float small = std::ldexp(static_cast<float>(fraction), -24);  // subnormal, or zero
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(small));
}

uint16_t ToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40u);  // quiet, so that its low bits may go
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// To 11 bits, to nearest with ties to even; below 2^-14 in steps of 2^-24.
uint16_t ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t size = bits & 0x7fffffffu;
  if (std::isnan(value)) return static_cast<uint16_t>(sign | 0x7e00u | ((size >> 13) & 0x3ffu));
  if (size >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and beyond
  if (size < 0x38800000u) {
    const float steps = std::nearbyint(std::ldexp(std::bit_cast<float>(size), 24));
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(steps));
  }
  const uint32_t rounded = size + 0xfffu + ((size >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

// A double in two steps would be rounded twice. Rounded to odd, a float with its 24 bits keeps all that the second
// rounding, to 8 or 11 bits, has to know (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved
// algorithms using rounding to odd", 2008).
float RoundToOdd(double value) {
  const float nearest = static_cast<float>(value);
  if (std::isnan(value) || static_cast<double>(nearest) == value || std::isinf(nearest)) return nearest;
  if (std::bit_cast<uint32_t>(nearest) & 1u) return nearest;
  return std::nextafter(nearest, static_cast<double>(nearest) < value ? INFINITY : -INFINITY);
}

template <typename T>
T Load(const void* from, int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(from) + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}
template <typename T>
void Store(void* to, int64_t i, T value) {
  std::memcpy(static_cast<char*>(to) + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

// Calls `with` with a function that loads element i in the type that holds its values exactly. False for other dtypes.
template <typename With>
bool WithLoader(std::string_view dtype, const void* from, const With& with) {
  const auto plain = [&]<typename T>(T) {
    with([from](int64_t i) { return Load<T>(from, i); });
    return true;
  };
  if (dtype == "F32") return plain(float());
  if (dtype == "F64") return plain(double());
  if (dtype == "I64") return plain(int64_t());
  if (dtype == "I32") return plain(int32_t());
  if (dtype == "I16") return plain(int16_t());
  if (dtype == "I8") return plain(int8_t());
  if (dtype == "U32") return plain(uint32_t());
  if (dtype == "U16") return plain(uint16_t());
  if (dtype == "U8" || dtype == "BOOL") return plain(uint8_t());
  if (dtype == "BF16") return with([from](int64_t i) { return FromBf16(Load<uint16_t>(from, i)); }), true;
  if (dtype == "F16") return with([from](int64_t i) { return FromF16(Load<uint16_t>(from, i)); }), true;
  return false;
}

// `exponent`: its bits, which are all set in what is not finite.
template <typename T>
std::optional<int64_t> FirstWithExponent(const void* data, int64_t n, int64_t begin, T exponent) {
  for (int64_t i = begin; i < n; ++i) {
    if ((Load<T>(data, i) & exponent) == exponent) return i;
  }
  return std::nullopt;
}

const char* WiderThan(std::string_view dtype) {
  if (dtype == "F16") return ": take --dtype bfloat16 or float32";
  return dtype == "BF16" ? ": take --dtype float32" : ": take an earlier checkpoint";
}

}  // namespace

bool IsFloat(std::string_view dtype) { return dtype == "F64" || dtype == "F32" || dtype == "F16" || dtype == "BF16"; }

bool HasValues(std::string_view dtype) { return DtypeBytes(dtype) && !dtype.starts_with("F8_"); }

void ToDouble(std::string_view dtype, const void* from, int64_t n, double* to) {
  WithLoader(dtype, from, [&](const auto& load) {
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<double>(load(i));
  });
}

Status ConvertFloats(std::string_view from_dtype, const void* from, int64_t n, std::string_view to_dtype, void* to) {
  const auto fail = [&] {
    return Fail(ErrorCode::kInvalidArgument,
                "no conversion from " + std::string(from_dtype) + " to " + std::string(to_dtype));
  };
  if (!IsFloat(from_dtype)) return fail();
  if (from_dtype == to_dtype) {
    std::memcpy(to, from, static_cast<size_t>(n * *DtypeBytes(from_dtype)));
    return {};
  }
  const auto convert = [&](const auto& store) {
    WithLoader(from_dtype, from, [&](const auto& load) {
      for (int64_t i = 0; i < n; ++i) store(i, load(i));
    });
  };
  if (to_dtype == "F64") {
    convert([to](int64_t i, auto value) { Store(to, i, static_cast<double>(value)); });
  } else if (to_dtype == "F32") {
    convert([to](int64_t i, auto value) { Store(to, i, static_cast<float>(value)); });
  } else if (to_dtype == "BF16" && from_dtype == "F64") {
    convert([to](int64_t i, auto value) { Store(to, i, ToBf16(RoundToOdd(static_cast<double>(value)))); });
  } else if (to_dtype == "BF16") {
    convert([to](int64_t i, auto value) { Store(to, i, ToBf16(static_cast<float>(value))); });
  } else if (to_dtype == "F16" && from_dtype == "F64") {
    convert([to](int64_t i, auto value) { Store(to, i, ToF16(RoundToOdd(static_cast<double>(value)))); });
  } else if (to_dtype == "F16") {
    convert([to](int64_t i, auto value) { Store(to, i, ToF16(static_cast<float>(value))); });
  } else {
    return fail();
  }
  return {};
}

std::optional<int64_t> FirstNotFinite(std::string_view dtype, const void* data, int64_t n, int64_t begin) {
  if (dtype == "F64") return FirstWithExponent<uint64_t>(data, n, begin, 0x7ff0000000000000u);
  if (dtype == "F32") return FirstWithExponent<uint32_t>(data, n, begin, 0x7f800000u);
  if (dtype == "BF16") return FirstWithExponent<uint16_t>(data, n, begin, 0x7f80u);
  if (dtype == "F16") return FirstWithExponent<uint16_t>(data, n, begin, 0x7c00u);
  return std::nullopt;
}

std::optional<int64_t> FirstOverflow(std::string_view from_dtype, const void* from, int64_t n,
                                     std::string_view to_dtype, const void* to) {
  const int64_t bytes = *DtypeBytes(from_dtype);
  auto at = FirstNotFinite(to_dtype, to, n);
  for (; at; at = FirstNotFinite(to_dtype, to, n, *at + 1)) {
    if (!FirstNotFinite(from_dtype, static_cast<const char*>(from) + *at * bytes, 1)) return at;
  }
  return std::nullopt;
}

Status NarrowFloats(std::string_view from_dtype, const void* from, int64_t n, std::string_view to_dtype, void* to) {
  if (Status s = ConvertFloats(from_dtype, from, n, to_dtype, to); !s) return s;
  const std::optional<int64_t> at = FirstOverflow(from_dtype, from, n, to_dtype, to);
  if (!at) return {};
  double value = 0;
  ToDouble(from_dtype, static_cast<const char*>(from) + *at * *DtypeBytes(from_dtype), 1, &value);
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return Fail(ErrorCode::kInvalidArgument,
              std::string(text) + " is too large for " + std::string(to_dtype) + WiderThan(to_dtype));
}

}  // namespace trainyard::checkpoint
