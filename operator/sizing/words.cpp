#include "operator/sizing/words.h"

#include <charconv>
#include <system_error>

#include "operator/base/quantity.h"

namespace trainyard::sizing {
namespace {

std::string Fixed(double value, int decimals) {
  char text[400];  // the longest double has 309 digits before its point
  const auto [end, error] = std::to_chars(text, text + sizeof(text), value, std::chars_format::fixed, decimals);
  return error == std::errc() ? std::string(text, end) : "?";
}

std::string Thousands(std::string digits) {
  for (size_t i = digits.size(); i > 3;) {
    i -= 3;
    digits.insert(i, ",");
  }
  return digits;
}

}  // namespace

std::string Gib(int64_t bytes) { return FormatBinaryBytes(static_cast<double>(bytes)); }

std::string Percent(double share) { return Fixed(100 * share, 0) + " %"; }

std::string Times(double factor) { return Fixed(factor, 1) + "x"; }

std::string HoursText(double hours) {
  return (hours < 10 ? Fixed(hours, 2) : hours < 1000 ? Fixed(hours, 1) : Thousands(Fixed(hours, 0))) + " h";
}

std::string Grouped(double amount) { return amount < 100 ? Fixed(amount, 2) : Thousands(Fixed(amount, 0)); }

std::string Sized(int64_t gpus, const std::string& product) { return std::to_string(gpus) + " x " + product; }

std::string Fits(int64_t count) { return std::to_string(count) + (count == 1 ? " fits" : " fit"); }

}  // namespace trainyard::sizing
