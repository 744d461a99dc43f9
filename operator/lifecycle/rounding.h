// Numbers of status, as people read them. Private to the room. Thread-safety: pure functions.
#pragma once

#include <cmath>
#include <optional>

namespace trainyard::lifecycle {

// To `digits` significant digits; nothing where the number is not finite.
inline std::optional<double> Round(std::optional<double> value, int digits) {
  if (!value || !std::isfinite(*value)) return std::nullopt;
  if (*value == 0) return 0.0;
  const double scale = std::pow(10.0, digits - 1 - static_cast<int>(std::floor(std::log10(std::abs(*value)))));
  const double rounded = std::round(*value * scale) / scale;
  return std::isfinite(rounded) ? rounded : *value;  // the scale of the very smallest is not a number
}

}  // namespace trainyard::lifecycle
