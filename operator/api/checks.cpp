#include "operator/api/checks.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "operator/api/names.h"

namespace trainyard::api {
namespace {

// Shortest text that reads back as the same number.
std::string Number(double value) { return nlohmann::json(value).dump(); }

}  // namespace

std::string At(std::string_view list, size_t index) { return std::string(list) + "[" + std::to_string(index) + "]"; }

std::string Quoted(std::string_view text) { return "'" + Printable(text) + "'"; }

void Checks::Range(const std::string& path, int64_t value, int64_t min, int64_t max) {
  if (value < min) Report(path, std::to_string(value) + " is less than " + std::to_string(min));
  if (value > max) Report(path, std::to_string(value) + " is more than " + std::to_string(max));
}

void Checks::Range(const std::string& path, double value, double min, double max, bool above) {
  if (above && !(value > min)) {
    Report(path, Number(value) + " must be more than " + Number(min));
  } else if (!above && !(value >= min)) {
    Report(path, Number(value) + " is less than " + Number(min));
  } else if (!(value <= max)) {
    Report(path, Number(value) + " is more than " + Number(max));
  }
}

bool Checks::Required(const std::string& path, const std::string& value, std::string_view what) {
  if (!value.empty()) return true;
  Report(path, "is required: " + std::string(what));
  return false;
}

void Checks::Length(const std::string& path, const std::string& value, size_t max) {
  // Bytes 10xxxxxx continue a character of UTF-8.
  const size_t size = std::count_if(value.begin(), value.end(), [](char c) { return (c & 0xC0) != 0x80; });
  if (size > max) {
    Report(path, "has " + std::to_string(size) + " characters; at most " + std::to_string(max) + " are allowed");
  }
  if (value.find('\0') != std::string::npos) Report(path, "contains a NUL character");
}

void Checks::Items(const std::string& path, size_t count, size_t max) {
  if (count > max) {
    Report(path, "has " + std::to_string(count) + " items; at most " + std::to_string(max) + " are allowed");
  }
}

void Checks::RelativePath(const std::string& path, const std::string& value) {
  Length(path, value, 1024);
  if (value.starts_with('/')) {
    Report(path, Quoted(value) + " must be relative to its volume");
    return;
  }
  if (std::any_of(value.begin(), value.end(), [](unsigned char byte) { return byte < 0x20 || byte == 0x7f; })) {
    Report(path, Quoted(value) + " must not contain control characters");
    return;
  }
  std::string_view rest = value;
  while (true) {
    size_t slash = rest.find('/');
    std::string_view part = rest.substr(0, slash);
    if (part.empty() || part == "." || part == "..") {
      Report(path, Quoted(value) + " must not contain empty, '.' or '..' parts");
      return;
    }
    if (slash == std::string_view::npos) return;
    rest.remove_prefix(slash + 1);
  }
}

void Checks::Unique(const std::string& path, const std::string& value, std::set<std::string>& seen) {
  if (!value.empty() && !seen.insert(value).second) Report(path, Quoted(value) + " is given twice");
}

}  // namespace trainyard::api
