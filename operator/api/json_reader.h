// Archive that reads a struct of fields.h from JSON and collects every problem with its path. Private to the room.
// Thread-safety: one thread per reader.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/api/fields.h"
#include "operator/api/names.h"

namespace trainyard::api {

// What all readers of one document share.
struct ReadContext {
  bool strict = true;  // unknown fields are errors
  std::vector<std::string>* errors = nullptr;

  // Appends "path: message"; after 50 problems nothing more, since nobody reads on.
  void Report(const std::string& path, const std::string& message) const;
};

// Scalars: false, with the problem reported, when `json` is something else.
bool ReadScalar(const ReadContext& context, const std::string& path, const nlohmann::json& json, int64_t& value);
bool ReadScalar(const ReadContext& context, const std::string& path, const nlohmann::json& json, double& value);
bool ReadScalar(const ReadContext& context, const std::string& path, const nlohmann::json& json, bool& value);
bool ReadScalar(const ReadContext& context, const std::string& path, const nlohmann::json& json, std::string& value);
bool ReadScalar(const ReadContext& context, const std::string& path, const nlohmann::json& json, TimePoint& value);
// An integer or a string, kept as text.
bool ReadCount(const ReadContext& context, const std::string& path, const nlohmann::json& json, std::string& text);
bool ExpectObject(const ReadContext& context, const std::string& path, const nlohmann::json& json);
bool ExpectList(const ReadContext& context, const std::string& path, const nlohmann::json& json);
// For messages: 'string "4"', "number 4.5", "a list"; at most a few dozen characters, on one line.
std::string Describe(const nlohmann::json& json);

class JsonReader {
 public:
  // `json` must be an object and outlive the reader.
  JsonReader(const ReadContext& context, const nlohmann::json& json, std::string path)
      : context_(context), json_(json), path_(std::move(path)) {}

  // Reads the struct `value` at `path`; null and absent are the caller's business.
  template <typename T>
  static void Read(const ReadContext& context, const nlohmann::json& json, const std::string& path, T& value) {
    if (!ExpectObject(context, path, json)) return;
    JsonReader reader(context, json, path);
    Fields(reader, value);
    reader.Finish();
  }

  template <typename T>
  void operator()(const char* name, T& value) {
    if (const nlohmann::json* json = Find(name)) Value(*json, PathOf(name), value);
  }
  template <typename Body>
  void Group(const char* name, const Body& body) {
    const nlohmann::json* json = Find(name);
    std::string path = PathOf(name);
    if (json == nullptr || !ExpectObject(context_, path, *json)) return;
    JsonReader reader(context_, *json, path);
    body(reader);
    reader.Finish();
  }
  template <typename Body>
  void OptionalGroup(const char* name, bool /*present*/, const Body& body) {
    Group(name, body);
  }
  void Presence(const char* name, bool& flag) {
    Group(name, [&](JsonReader&) { flag = true; });
  }
  void Count(const char* name, std::string& text) {
    if (const nlohmann::json* json = Find(name)) ReadCount(context_, PathOf(name), *json, text);
  }
  // A string or a list.
  template <typename T>
  void NonEmpty(const char* name, T& value) {
    const nlohmann::json* json = Find(name);
    if (json == nullptr) return;
    Value(*json, PathOf(name), value);
    const bool right_type = std::same_as<T, std::string> ? json->is_string() : json->is_array();
    if (right_type && value.empty()) context_.Report(PathOf(name), "is empty; leave it out instead");
  }
  void PreciseTime(const char* name, std::optional<TimePoint>& time) { (*this)(name, time); }
  void Opaque(const char* name, OpaqueKind kind, std::string& text);
  void Passed(std::span<const OpaqueField> fields, std::string& text);
  void Refused(const char* name, const char* why);

  // The member `name`, or null when absent or null; remembers the name as known.
  const nlohmann::json* Find(const char* name);
  std::string PathOf(std::string_view name) const;
  // Reports fields that nobody asked for.
  void Finish() const;

 private:
  template <typename T>
  void Value(const nlohmann::json& json, const std::string& path, std::optional<T>& value) {
    value.emplace();
    Value(json, path, *value);
  }
  template <typename T>
  void Value(const nlohmann::json& json, const std::string& path, std::vector<T>& value) {
    if (!ExpectList(context_, path, json)) return;
    value.clear();
    for (size_t i = 0; i < json.size(); ++i) {
      T item{};
      Value(json[i], path + "[" + std::to_string(i) + "]", item);
      value.push_back(std::move(item));
    }
  }
  template <typename T>
  void Value(const nlohmann::json& json, const std::string& path, std::map<std::string, T>& value) {
    if (!ExpectObject(context_, path, json)) return;
    value.clear();
    for (const auto& [key, item] : json.items()) Value(item, path + "[" + Printable(key) + "]", value[key]);
  }
  template <NamedEnum E>
  void Value(const nlohmann::json& json, const std::string& path, E& value) {
    std::string text;
    if (!ReadScalar(context_, path, json, text)) return;
    if (auto known = FromString<E>(text)) {
      value = *known;
    } else {
      context_.Report(path, Describe(json) + " is not a value of this field; " + Suggest(text, AllNames<E>()));
    }
  }
  template <typename T>
  void Value(const nlohmann::json& json, const std::string& path, T& value) {
    if constexpr (requires(JsonReader& r) { Fields(r, value); }) {
      Read(context_, json, path, value);
    } else {
      ReadScalar(context_, path, json, value);
    }
  }

  const ReadContext& context_;
  const nlohmann::json& json_;
  std::string path_;
  std::vector<std::string_view> known_;
  std::vector<std::string_view> refused_;
};

}  // namespace trainyard::api
