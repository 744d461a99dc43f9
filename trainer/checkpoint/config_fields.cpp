#include "trainer/checkpoint/config_fields.h"

namespace trainyard::checkpoint {
namespace {

using nlohmann::json;

constexpr size_t kMostShown = 80;
constexpr size_t kMostNamed = 5;

// On one line of ASCII, cut to a readable length.
std::string Shown(const json& value) {
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
  return text.size() > kMostShown ? text.substr(0, kMostShown) + "..." : text;
}
std::string ShownKey(const std::string& key) {
  const std::string quoted = Shown(json(key));
  return quoted == "\"" + key + "\"" ? key : quoted;
}

}  // namespace

const json* ConfigFields::Find(const char* key) {
  asked_.insert(key);
  const auto found = config_.find(key);
  return found == config_.end() || found->is_null() ? nullptr : &*found;
}

int64_t ConfigFields::Size(const char* key, std::optional<int64_t> otherwise, int64_t most) {
  const json* value = Find(key);
  if (value == nullptr) {
    if (!otherwise) Complain(key, "is missing");
    return otherwise.value_or(1);
  }
  const bool fits = value->is_number_integer() && *value > 0 && *value <= most;
  if (!fits) Complain(key, Shown(*value) + " is not a size");
  return fits ? value->get<int64_t>() : 1;
}

double ConfigFields::Number(const char* key, std::optional<double> otherwise) {
  const json* value = Find(key);
  if (value == nullptr) {
    if (!otherwise) Complain(key, "is missing");
    return otherwise.value_or(1);
  }
  const bool fits = value->is_number() && value->get<double>() > 0 && value->get<double>() < 1e30;
  if (!fits) Complain(key, Shown(*value) + " is not a positive number");
  return fits ? value->get<double>() : 1;
}

bool ConfigFields::Flag(const char* key, bool otherwise) {
  const json* value = Find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) Complain(key, Shown(*value) + " is not true or false");
  return value->is_boolean() ? value->get<bool>() : otherwise;
}

std::string ConfigFields::Text(const char* key, const std::string& otherwise) {
  const json* value = Find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_string()) Complain(key, Shown(*value) + " is not a text");
  return value->is_string() ? value->get<std::string>() : otherwise;
}

void ConfigFields::Only(const char* key, const std::vector<json>& allowed) {
  const json* value = Find(key);
  for (const json& one : allowed) {
    if (value == nullptr || *value == one) return;
  }
  Complain(key, Shown(*value) + " is not what our trainer computes (" + allowed.front().dump() + ")");
}

void ConfigFields::Finish(const std::set<std::string>& harmless) {
  std::string names;
  size_t count = 0;
  for (const auto& [key, value] : config_.items()) {
    if (value.is_null() || asked_.contains(key) || harmless.contains(key)) continue;
    if (++count <= kMostNamed) names += (names.empty() ? "" : ", ") + ShownKey(key);
  }
  if (count == 0) return;
  if (count > kMostNamed) names += " and " + std::to_string(count - kMostNamed) + " more";
  Complain(names, std::string(count == 1 ? "is not a key" : "are not keys") +
                      " that is known here, and might change what the model computes; remove what does not");
}

}  // namespace trainyard::checkpoint
