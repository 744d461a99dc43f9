// Reads fields of a JSON object that may be anything at all. Absent and null read as "not there"; a field of the wrong
// type is remembered as the first error, with its path, and reads as "not there" too, so that callers stay
// straight-line. Thread-safety: none.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "operator/base/clock.h"
#include "operator/base/error.h"

namespace trainyard::cluster {

class JsonReader {
 public:
  // `what` opens every message: "pod ns/name".
  explicit JsonReader(std::string what) : what_(std::move(what)) {}

  // Never null: an empty object or array stands in.
  const nlohmann::json& Object(const nlohmann::json& parent, std::string_view key);
  const nlohmann::json& Array(const nlohmann::json& parent, std::string_view key);
  std::string String(const nlohmann::json& parent, std::string_view key);
  bool Bool(const nlohmann::json& parent, std::string_view key);
  std::optional<int64_t> Integer(const nlohmann::json& parent, std::string_view key);
  std::optional<TimePoint> Time(const nlohmann::json& parent, std::string_view key);
  std::map<std::string, std::string> StringMap(const nlohmann::json& parent, std::string_view key);
  // Resource list: base units, cpu in thousandths. Quantities may be strings or numbers.
  std::map<std::string, int64_t> Quantities(const nlohmann::json& parent, std::string_view key);

  void Problem(std::string_view field, std::string_view message);
  const std::optional<Error>& error() const { return error_; }

 private:
  const nlohmann::json* Find(const nlohmann::json& parent, std::string_view key);

  const std::string what_;
  std::optional<Error> error_;
};

}  // namespace trainyard::cluster
