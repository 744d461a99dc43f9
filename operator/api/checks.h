// Collects the errors of a validation, each with its path. Private to the room. Thread-safety: one thread per
// collector.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace trainyard::api {

class Checks {
 public:
  void Report(const std::string& path, const std::string& message) { errors_.push_back(path + ": " + message); }
  // Reports unless min <= value <= max.
  void Range(const std::string& path, int64_t value, int64_t min, int64_t max);
  // Reports unless min <= value <= max, or min < value with `above`; NaN never passes.
  void Range(const std::string& path, double value, double min, double max, bool above = false);
  // Reports an empty text; false then.
  bool Required(const std::string& path, const std::string& value, std::string_view what);
  // Reports a text longer than `max` characters (code points, as the API server counts them) or with a NUL in it.
  void Length(const std::string& path, const std::string& value, size_t max);
  void Items(const std::string& path, size_t count, size_t max);
  // A path inside a volume: relative, without empty, '.' or '..' parts and without control characters.
  void RelativePath(const std::string& path, const std::string& value);
  // Reports `value` if it is in `seen` already, else remembers it.
  void Unique(const std::string& path, const std::string& value, std::set<std::string>& seen);

  std::vector<std::string> Take() { return std::move(errors_); }

 private:
  std::vector<std::string> errors_;
};

// "spec.volumes" and 2 -> "spec.volumes[2]".
std::string At(std::string_view list, size_t index);
// 'text' in quotes, cut short and on one line.
std::string Quoted(std::string_view text);

}  // namespace trainyard::api
