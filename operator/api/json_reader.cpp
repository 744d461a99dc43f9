#include "operator/api/json_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace trainyard::api {
namespace {

constexpr size_t kMaxErrors = 50;
constexpr size_t kMaxQuoted = 48;
// Beyond 2^53 a double no longer holds every integer: a value that came through one may be another than was written.
constexpr double kMaxExact = 9007199254740992.0;

using nlohmann::json;

// An integer that a YAML or JSON reader took for a float: 4.0, 1e3.
std::optional<int64_t> IntegerOfFloat(double x) {
  if (std::isfinite(x) && x == std::floor(x) && std::abs(x) <= kMaxExact) return static_cast<int64_t>(x);
  return std::nullopt;
}

// True if `value` is of `kind`; else the problem is reported.
bool IsOfKind(const ReadContext& context, const std::string& path, const json& value, OpaqueKind kind) {
  std::string text;
  bool flag = false;
  switch (kind) {
    case OpaqueKind::kText:
      if (!ReadScalar(context, path, value, text)) return false;
      if (text.empty()) context.Report(path, "is empty; leave it out instead");
      return !text.empty();
    case OpaqueKind::kFlag:
      return ReadScalar(context, path, value, flag);
    case OpaqueKind::kObject:
      return ExpectObject(context, path, value);
    default:
      break;
  }
  if (!ExpectList(context, path, value)) return false;
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string at = path + "[" + std::to_string(i) + "]";
    if (!ExpectObject(context, at, value[i])) return false;
    if (kind != OpaqueKind::kNamedObjects) continue;
    auto name = value[i].find("name");
    if (name == value[i].end() || !name->is_string() || name->get_ref<const std::string&>().empty()) {
      context.Report(at + ".name", "is required: a name");
      return false;
    }
  }
  return true;
}

bool LooksLikeNumber(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789.eE+-") == std::string::npos;
}

}  // namespace

void ReadContext::Report(const std::string& path, const std::string& message) const {
  if (errors->size() < kMaxErrors) errors->push_back((path.empty() ? "object" : path) + ": " + message);
}

std::string Describe(const json& json) {
  switch (json.type()) {
    case json::value_t::null:
      return "null";
    case json::value_t::object:
      return "an object";
    case json::value_t::array:
      return "a list";
    case json::value_t::string: {
      // Cut before dumping, since a value may be megabytes long; "replace" because the cut may halve a UTF-8 character.
      const auto& text = json.get_ref<const std::string&>();
      nlohmann::json head = text.substr(0, kMaxQuoted);
      return "string " + head.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
             (text.size() > kMaxQuoted ? "..." : "");
    }
    case json::value_t::boolean:
      return json.get<bool>() ? "true" : "false";
    default:
      return "number " + json.dump();
  }
}

bool ReadScalar(const ReadContext& context, const std::string& path, const json& json, int64_t& value) {
  if (json.is_number_unsigned()) {
    uint64_t wide = json.get<uint64_t>();
    if (wide <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      value = static_cast<int64_t>(wide);
      return true;
    }
  } else if (json.is_number_integer()) {
    value = json.get<int64_t>();
    return true;
  } else if (json.is_number_float()) {
    double x = json.get<double>();
    if (auto whole = IntegerOfFloat(x)) {
      value = *whole;
      return true;
    }
    if (x != std::floor(x)) {
      context.Report(path, "expected an integer, found " + Describe(json));
      return false;
    }
  } else {
    std::string hint;
    if (json.is_string() && LooksLikeNumber(json.get_ref<const std::string&>())) hint = "; write it without quotes";
    context.Report(path, "expected an integer, found " + Describe(json) + hint);
    return false;
  }
  context.Report(path, Describe(json) + " does not fit into 64 bits");
  return false;
}

bool ReadScalar(const ReadContext& context, const std::string& path, const json& json, double& value) {
  if (!json.is_number()) {
    std::string hint;
    if (json.is_string() && LooksLikeNumber(json.get_ref<const std::string&>())) hint = "; write it without quotes";
    context.Report(path, "expected a number, found " + Describe(json) + hint);
    return false;
  }
  value = json.get<double>();
  return true;
}

bool ReadScalar(const ReadContext& context, const std::string& path, const json& json, bool& value) {
  if (!json.is_boolean()) {
    context.Report(path, "expected true or false, found " + Describe(json));
    return false;
  }
  value = json.get<bool>();
  return true;
}

bool ReadScalar(const ReadContext& context, const std::string& path, const json& json, std::string& value) {
  if (!json.is_string()) {
    std::string hint = json.is_number() || json.is_boolean() ? "; write it in quotes" : "";
    context.Report(path, "expected a string, found " + Describe(json) + hint);
    return false;
  }
  value = json.get<std::string>();
  return true;
}

bool ReadScalar(const ReadContext& context, const std::string& path, const json& json, TimePoint& value) {
  std::string text;
  if (!ReadScalar(context, path, json, text)) return false;
  auto time = ParseTime(text);
  if (!time) {
    context.Report(path, Describe(json) + " is not a UTC time such as 2026-01-31T12:00:00Z");
    return false;
  }
  value = *time;
  return true;
}

bool ReadCount(const ReadContext& context, const std::string& path, const json& json, std::string& text) {
  if (json.is_string()) {
    text = json.get<std::string>();
    return true;
  }
  if (json.is_number_integer()) {
    text = json.dump();
    return true;
  }
  if (json.is_number_float()) {
    if (auto whole = IntegerOfFloat(json.get<double>())) {
      text = std::to_string(*whole);
      return true;
    }
  }
  context.Report(path, "expected an integer or a string such as 7B, found " + Describe(json));
  return false;
}

bool ExpectObject(const ReadContext& context, const std::string& path, const json& json) {
  if (json.is_object()) return true;
  context.Report(path, "expected an object, found " + Describe(json));
  return false;
}

bool ExpectList(const ReadContext& context, const std::string& path, const json& json) {
  if (json.is_array()) return true;
  context.Report(path, "expected a list, found " + Describe(json));
  return false;
}

const json* JsonReader::Find(const char* name) {
  known_.push_back(name);
  auto found = json_.find(name);
  // The API server drops nulls before defaulting: null means absent.
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

std::string JsonReader::PathOf(std::string_view name) const {
  return path_.empty() ? std::string(name) : path_ + "." + std::string(name);
}

void JsonReader::Opaque(const char* name, OpaqueKind kind, std::string& text) {
  const json* value = Find(name);
  if (value == nullptr || !IsOfKind(context_, PathOf(name), *value, kind)) return;
  if (!value->is_structured() || !value->empty()) text = value->dump();
}

void JsonReader::Passed(std::span<const OpaqueField> fields, std::string& text) {
  json found = json::object();
  for (const OpaqueField& field : fields) {
    const json* value = Find(field.name);
    if (value == nullptr || !IsOfKind(context_, PathOf(field.name), *value, field.kind)) continue;
    if (!value->is_structured() || !value->empty()) found[field.name] = *value;
  }
  if (!found.empty()) text = found.dump();
}

void JsonReader::Refused(const char* name, const char* why) {
  if (Find(name) != nullptr) context_.Report(PathOf(name), std::string("cannot be set: ") + why);
  known_.pop_back();  // no suggestion for a misspelled field
  refused_.push_back(name);
}

void JsonReader::Finish() const {
  if (!context_.strict) return;
  for (const auto& [key, value] : json_.items()) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    if (std::find(refused_.begin(), refused_.end(), key) != refused_.end()) continue;
    context_.Report(PathOf(Printable(key)),
                    "unknown field; " + (known_.empty() ? "none is known here" : Suggest(key, known_)));
  }
}

}  // namespace trainyard::api
