#include "operator/base/quantity.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <optional>

namespace trainyard {
namespace {

using Wide = __int128;
constexpr Wide kMax = std::numeric_limits<int64_t>::max();

// A decimal number digits[.digits] as mantissa / 10^scale. At most 30 digits, so that 128 bits hold it.
struct Decimal {
  Wide mantissa = 0;
  int scale = 0;
};

std::optional<Decimal> TakeDecimal(std::string_view& text) {
  Decimal d;
  int digits = 0;
  bool point = false;
  size_t i = 0;
  for (; i < text.size(); ++i) {
    char c = text[i];
    if (c == '.' && !point) {
      point = true;
    } else if (c >= '0' && c <= '9') {
      if (++digits > 30) return std::nullopt;
      d.mantissa = d.mantissa * 10 + (c - '0');
      if (point) ++d.scale;
    } else {
      break;
    }
  }
  if (digits == 0) return std::nullopt;
  text.remove_prefix(i);
  return d;
}

// ceil(mantissa * factor / (10^scale * divisor)), or nothing when it leaves 63 bits.
std::optional<int64_t> Scale(Decimal d, Wide factor, Wide divisor) {
  if (d.mantissa != 0 && factor > (Wide(1) << 126) / d.mantissa) return std::nullopt;
  Wide value = d.mantissa * factor;
  for (int i = 0; i < d.scale; ++i) {
    if (divisor > (Wide(1) << 126) / 10) return value == 0 ? 0 : 1;  // below any unit, rounded up
    divisor *= 10;
  }
  value = (value + divisor - 1) / divisor;
  if (value > kMax) return std::nullopt;
  return static_cast<int64_t>(value);
}

Wide Power(Wide base, int exponent) {
  Wide p = 1;
  for (int i = 0; i < exponent; ++i) p *= base;
  return p;
}

// For an error of one line, whatever was given.
std::string Shown(std::string_view text) {
  constexpr size_t kMost = 40;
  size_t end = std::min(text.size(), kMost);
  // Not in the middle of a character of UTF-8.
  while (end > 0 && end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  std::string out;
  for (const char c : text.substr(0, end)) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return "'" + out + (text.size() > end ? "...'" : "'");
}

Result<int64_t> ParseWith(std::string_view text, Wide unit) {
  auto bad = [&](const char* why) {
    return Fail(ErrorCode::kInvalidArgument, Shown(text) + " is not a quantity such as 2, 500m or 16Gi: " + why);
  };
  std::string_view rest = text;
  auto number = TakeDecimal(rest);
  if (!number) return bad("it does not start with a number of at most 30 digits");
  Wide factor = unit;
  Wide divisor = 1;
  static constexpr std::array<std::string_view, 6> kBinary = {"Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
  static constexpr std::array<std::string_view, 6> kDecimal = {"k", "M", "G", "T", "P", "E"};
  bool known = rest.empty();
  for (size_t i = 0; i < 6 && !known; ++i) {
    if (rest == kBinary[i]) {
      factor *= Power(1024, static_cast<int>(i) + 1);
      known = true;
    } else if (rest == kDecimal[i]) {
      factor *= Power(1000, static_cast<int>(i) + 1);
      known = true;
    }
  }
  if (!known && rest == "m") {
    divisor = 1000;
    known = true;
  } else if (!known && rest == "u") {
    divisor = 1'000'000;
    known = true;
  } else if (!known && rest == "n") {
    divisor = 1'000'000'000;
    known = true;
  } else if (!known && (rest[0] == 'e' || rest[0] == 'E')) {
    std::string_view exponent = rest.substr(1);
    bool negative = !exponent.empty() && exponent[0] == '-';
    if (!exponent.empty() && (exponent[0] == '-' || exponent[0] == '+')) exponent.remove_prefix(1);
    auto power = TakeDecimal(exponent);
    if (power && power->scale == 0 && exponent.empty() && power->mantissa <= 18) {
      (negative ? divisor : factor) *= Power(10, static_cast<int>(power->mantissa));
      known = true;
    }
  }
  if (!known) return bad("unknown suffix");
  auto value = Scale(*number, factor, divisor);
  if (!value) return bad("it is too large");
  return *value;
}

std::string FormatScaled(double value, double step, const std::array<const char*, 6>& units) {
  size_t i = 0;
  while (i + 1 < units.size() && value >= step) {
    value /= step;
    ++i;
  }
  char text[48];
  std::snprintf(text, sizeof(text), i == 0 ? "%.0f %s" : "%.1f %s", value, units[i]);
  return text;
}

}  // namespace

Result<int64_t> ParseQuantity(std::string_view text) { return ParseWith(text, 1); }

Result<int64_t> ParseMilliQuantity(std::string_view text) { return ParseWith(text, 1000); }

Result<int64_t> ParseCount(std::string_view text) {
  std::string_view rest = text;
  auto number = TakeDecimal(rest);
  int power = -1;
  if (rest.empty()) power = 0;
  if (rest == "K" || rest == "k") power = 3;
  if (rest == "M" || rest == "m") power = 6;
  if (rest == "B" || rest == "b" || rest == "G") power = 9;
  if (rest == "T" || rest == "t") power = 12;
  auto value = number && power >= 0 ? Scale(*number, Power(10, power), 1) : std::nullopt;
  if (!value || *value == 0) {
    return Fail(ErrorCode::kInvalidArgument,
                Shown(text) + " is not a parameter count such as 125M, 7B, 1.1T or 7000000000");
  }
  return *value;
}

std::string FormatBytes(double bytes) { return FormatScaled(bytes, 1000, {"B", "kB", "MB", "GB", "TB", "PB"}); }

std::string FormatBinaryBytes(double bytes) {
  return FormatScaled(bytes, 1024, {"B", "KiB", "MiB", "GiB", "TiB", "PiB"});
}

std::string FormatCount(int64_t count) {
  static constexpr std::array<std::pair<int64_t, const char*>, 4> kUnits = {
      {{1'000'000'000'000, "T"}, {1'000'000'000, "B"}, {1'000'000, "M"}, {1'000, "K"}}};
  for (const auto& [unit, suffix] : kUnits) {
    if (count < unit) continue;
    char text[48];
    if (count % unit == 0) {
      std::snprintf(text, sizeof(text), "%lld%s", static_cast<long long>(count / unit), suffix);
    } else {
      std::snprintf(text, sizeof(text), "%.2f%s", static_cast<double>(count) / static_cast<double>(unit), suffix);
    }
    return text;
  }
  return std::to_string(count);
}

}  // namespace trainyard
