// Archive that writes a struct of fields.h as JSON. Private to the room. Thread-safety: one thread per writer.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/api/fields.h"
#include "operator/api/names.h"

namespace trainyard::api {

class JsonWriter {
 public:
  template <typename T>
  static nlohmann::json Write(const T& value) {
    JsonWriter writer;
    Fields(writer, value);
    return std::move(writer.object_);
  }

  void operator()(const char* name, int64_t value) { object_[name] = value; }
  void operator()(const char* name, bool value) { object_[name] = value; }
  void operator()(const char* name, double value) {
    if (std::isfinite(value)) object_[name] = value;
  }
  void operator()(const char* name, const std::string& value) {
    if (!value.empty()) object_[name] = value;
  }
  void operator()(const char* name, TimePoint value) { object_[name] = FormatTime(value); }
  template <NamedEnum E>
  void operator()(const char* name, E value) {
    object_[name] = ToString(value);
  }
  template <typename T>
  void operator()(const char* name, const std::optional<T>& value) {
    if (value) (*this)(name, *value);
  }
  template <typename T>
  void operator()(const char* name, const std::vector<T>& value) {
    if (value.empty()) return;
    nlohmann::json list = nlohmann::json::array();
    for (const T& item : value) list.push_back(Item(item));
    object_[name] = std::move(list);
  }
  // Written even if empty: lists of numbers have defaults, which an absent list would mean.
  void operator()(const char* name, const std::vector<double>& value) { object_[name] = value; }
  template <typename T>
  void operator()(const char* name, const std::map<std::string, T>& value) {
    if (!value.empty()) object_[name] = value;
  }
  void operator()(const char* name, const std::map<std::string, TimePoint>& value) {
    for (const auto& [key, time] : value) object_[name][key] = FormatTime(time);
  }
  template <typename T>
    requires requires(JsonWriter& w, const T& v) { Fields(w, v); }
  void operator()(const char* name, const T& value) {
    object_[name] = Write(value);
  }

  template <typename Body>
  void Group(const char* name, const Body& body) {
    JsonWriter writer;
    body(writer);
    object_[name] = std::move(writer.object_);
  }
  template <typename Body>
  void OptionalGroup(const char* name, bool present, const Body& body) {
    if (present) Group(name, body);
  }
  void Presence(const char* name, bool flag) {
    if (flag) object_[name] = nlohmann::json::object();
  }
  void Count(const char* name, const std::string& text) { (*this)(name, text); }
  template <typename T>
  void NonEmpty(const char* name, const T& value) {
    (*this)(name, value);
  }
  void PreciseTime(const char* name, const std::optional<TimePoint>& time) {
    if (time) object_[name] = FormatTime(*time, true);
  }
  void Opaque(const char* name, OpaqueKind /*kind*/, const std::string& text) {
    if (!text.empty()) object_[name] = nlohmann::json::parse(text);
  }
  void Passed(std::span<const OpaqueField> /*fields*/, const std::string& text) {
    if (!text.empty()) object_.update(nlohmann::json::parse(text));
  }
  void Refused(const char* /*name*/, const char* /*why*/) {}

 private:
  template <typename T>
  static nlohmann::json Item(const T& item) {
    if constexpr (requires(JsonWriter& w) { Fields(w, item); }) {
      return Write(item);
    } else {
      return item;
    }
  }

  nlohmann::json object_ = nlohmann::json::object();
};

}  // namespace trainyard::api
