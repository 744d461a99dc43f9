#include "operator/cluster/json_reader.h"

#include "operator/base/quantity.h"

namespace trainyard::cluster {

using nlohmann::json;

void JsonReader::Problem(std::string_view field, std::string_view message) {
  if (error_) return;
  error_ = Error{ErrorCode::kInvalidArgument, what_ + ": " + std::string(field) + ": " + std::string(message)};
}

const json* JsonReader::Find(const json& parent, std::string_view key) {
  if (!parent.is_object()) {
    Problem(key, "its parent is not an object");
    return nullptr;
  }
  const auto found = parent.find(key);
  return found == parent.end() || found->is_null() ? nullptr : &*found;
}

const json& JsonReader::Object(const json& parent, std::string_view key) {
  static const json kEmpty = json::object();
  const json* found = Find(parent, key);
  if (!found) return kEmpty;
  if (found->is_object()) return *found;
  Problem(key, "must be an object");
  return kEmpty;
}

const json& JsonReader::Array(const json& parent, std::string_view key) {
  static const json kEmpty = json::array();
  const json* found = Find(parent, key);
  if (!found) return kEmpty;
  if (found->is_array()) return *found;
  Problem(key, "must be a list");
  return kEmpty;
}

std::string JsonReader::String(const json& parent, std::string_view key) {
  const json* found = Find(parent, key);
  if (!found) return {};
  if (found->is_string()) return found->get<std::string>();
  Problem(key, "must be a string");
  return {};
}

bool JsonReader::Bool(const json& parent, std::string_view key) {
  const json* found = Find(parent, key);
  if (!found) return false;
  if (found->is_boolean()) return found->get<bool>();
  Problem(key, "must be true or false");
  return false;
}

std::optional<int64_t> JsonReader::Integer(const json& parent, std::string_view key) {
  const json* found = Find(parent, key);
  if (!found) return std::nullopt;
  const bool fits =
      found->is_number_integer() && (!found->is_number_unsigned() || found->get<uint64_t>() <= uint64_t{INT64_MAX});
  if (fits) return found->get<int64_t>();
  Problem(key, "must be an integer of at most 63 bits");
  return std::nullopt;
}

std::optional<TimePoint> JsonReader::Time(const json& parent, std::string_view key) {
  const std::string text = String(parent, key);
  if (text.empty()) return std::nullopt;
  Result<TimePoint> time = ParseTime(text);
  if (time) return *time;
  Problem(key, time.error().message);
  return std::nullopt;
}

std::map<std::string, std::string> JsonReader::StringMap(const json& parent, std::string_view key) {
  std::map<std::string, std::string> entries;
  for (const auto& [name, value] : Object(parent, key).items()) {
    if (value.is_string()) {
      entries.emplace(name, value.get<std::string>());
    } else {
      Problem(std::string(key) + "." + name, "must be a string");
    }
  }
  return entries;
}

std::map<std::string, int64_t> JsonReader::Quantities(const json& parent, std::string_view key) {
  std::map<std::string, int64_t> quantities;
  for (const auto& [name, value] : Object(parent, key).items()) {
    if (!value.is_string() && !value.is_number()) {
      Problem(std::string(key) + "." + name, "must be a quantity");
      continue;
    }
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    Result<int64_t> amount = name == "cpu" ? ParseMilliQuantity(text) : ParseQuantity(text);
    if (amount) {
      quantities[name] = *amount;
    } else {
      Problem(std::string(key) + "." + name, amount.error().message);
    }
  }
  return quantities;
}

}  // namespace trainyard::cluster
