// Reads one JSON object strictly: each key is asked for once, with its type and range; what was not asked for is
// unknown. Problems are collected as "path: what; remedy" and reading goes on, so that a user sees all of them at once.
// Thread-safety: none; a reader belongs to one parse.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace trainyard::config {

using Problems = std::vector<std::string>;

class JsonReader {
 public:
  // `path` is "" for the document itself. A value that is not an object is reported here, once.
  JsonReader(const nlohmann::json* value, std::string path, Problems& problems);

  // Each returns `fallback` where the key is absent and a fallback is given, and a harmless value after a problem.
  int64_t Int(const char* key, int64_t min, int64_t max, std::optional<int64_t> fallback = {});
  uint64_t Unsigned(const char* key);
  // In [min, max], or (min, max] when `above`.
  double Number(const char* key, double min, double max, bool above, std::optional<double> fallback = {});
  // In [0, 1).
  double Fraction(const char* key);
  bool Bool(const char* key);
  // Not empty unless `may_be_empty`.
  std::string String(const char* key, bool may_be_empty = false);
  // One of the names; returns the value beside it.
  template <typename E>
  E Enum(const char* key, std::initializer_list<std::pair<const char*, E>> names, std::optional<E> fallback = {}) {
    std::string all;
    const std::string* text = EnumText(key, fallback.has_value());
    for (const auto& [name, value] : names) {
      if (text != nullptr && *text == name) {
        return value;
      }
      all += (all.empty() ? "" : ", ") + std::string(name);
    }
    if (text != nullptr) {
      Add(key, "\"" + *text + "\" is unknown; use one of " + all);
    }
    return fallback.value_or(names.begin()->second);
  }
  // The object under `key`; when `optional` and absent, a reader for which present() is false.
  JsonReader Object(const char* key, bool optional = false);
  // The elements of the array under `key`; nothing when it is absent or not an array.
  std::optional<std::vector<const nlohmann::json*>> Array(const char* key, bool optional = false);

  // Whether the key is there; does not count as asking for it.
  bool Has(const char* key) const { return value_ != nullptr && value_->contains(key); }
  bool present() const { return value_ != nullptr; }
  std::string Path(std::string_view key) const;
  void Add(std::string_view key, const std::string& problem);
  // Reports keys that nobody asked for. Call last.
  void Finish();

 private:
  const nlohmann::json* Take(const char* key, bool optional, const char* kind);
  const std::string* EnumText(const char* key, bool optional);

  const nlohmann::json* value_;  // null: absent or not an object
  std::string path_;
  Problems& problems_;
  std::set<std::string> asked_;
};

// `"text"`, `12`, `[...]`: a value as a message shows it, cut to a readable length.
std::string Show(const nlohmann::json& value);

}  // namespace trainyard::config
