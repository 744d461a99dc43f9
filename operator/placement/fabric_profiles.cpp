#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "operator/api/names.h"
#include "operator/api/yaml.h"
#include "operator/placement/fabric.h"
#include "operator/placement/fabric_text.h"

namespace trainyard::placement {
namespace {

using nlohmann::json;

constexpr const char* kNames[] = {"Common", "NVLink", "PCIe", "MNNVL", "EFA", "InfiniBand", "Ethernet"};
constexpr size_t kMostVariables = 32;  // of a profile: they are kept in the status of every job
constexpr size_t kLongestName = 128;
constexpr size_t kLongestText = 512;

tl::unexpected<Error> Bad(const std::string& what) { return Fail(ErrorCode::kInvalidArgument, what); }

// The rendezvous, which the operator alone knows.
bool IsOurs(std::string_view name) {
  static constexpr std::string_view kOurs[] = {"MASTER_ADDR", "MASTER_PORT",      "RANK",       "WORLD_SIZE",
                                               "LOCAL_RANK",  "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK"};
  return name.starts_with("TRAINYARD_") || std::find(std::begin(kOurs), std::end(kOurs), name) != std::end(kOurs);
}

bool IsVariableName(std::string_view name) {
  const auto letter = [](char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_'; };
  if (name.empty() || name.size() > kLongestName || !letter(name.front())) return false;
  return std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

Result<std::string> Text(const json& value, const std::string& field) {
  if (!value.is_string()) return Bad(field + ": not a text; quote numbers");
  const auto& text = value.get_ref<const std::string&>();
  if (text.size() > kLongestText) return Bad(field + ": longer than " + std::to_string(kLongestText) + " bytes");
  if (std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; })) {
    return Bad(field + ": has a control character");
  }
  return text;
}

// Writes one row over `profile`.
Status ApplyVariable(const json& row, FabricProfile& profile) {
  if (!row.is_object() || !row.contains("name") || !row["name"].is_string()) return Bad("a variable without a name");
  FabricVariable variable{.name = row["name"].get<std::string>(), .value = "", .reason = ""};
  if (!IsVariableName(variable.name)) {
    return Bad("'" + api::Printable(variable.name) + "' is no name of an environment variable");
  }
  if (IsOurs(variable.name)) return Bad(variable.name + " is set by the operator itself");
  if (!row.contains("value")) return Bad(variable.name + ": the key 'value' is missing");
  for (const auto& [key, value] : row.items()) {
    if (key == "name" || (key == "value" && value.is_null())) continue;
    if (key != "value" && key != "reason")
      return Bad(variable.name + ": '" + api::Printable(key) + "' is no key of it");
    const auto text = Text(value, variable.name + "." + key);
    if (!text) return Fail(text.error());
    (key == "value" ? variable.value : variable.reason) = *text;
  }
  auto& all = profile.variables;
  const auto old = std::find_if(all.begin(), all.end(), [&](const auto& known) { return known.name == variable.name; });
  if (row["value"].is_null()) {
    if (old != all.end()) all.erase(old);
  } else if (old != all.end()) {
    *old = std::move(variable);
  } else {
    all.push_back(std::move(variable));
  }
  if (all.size() > kMostVariables) return Bad("more than " + std::to_string(kMostVariables) + " variables");
  return {};
}

Status ApplyProfile(const json& row, std::vector<FabricProfile>& profiles, std::set<std::string>& seen) {
  if (!row.is_object() || !row.contains("name") || !row["name"].is_string()) return Bad("a profile without a name");
  const auto name = row["name"].get<std::string>();
  const auto profile =
      std::find_if(profiles.begin(), profiles.end(), [&](const FabricProfile& known) { return known.name == name; });
  if (profile == profiles.end()) {
    std::string known;
    for (const char* one : kNames) known += (known.empty() ? "" : ", ") + std::string(one);
    return Bad("'" + api::Printable(name) + "' is no profile; the profiles are " + known);
  }
  if (!seen.insert(name).second) return Bad(name + " is there twice");
  for (const auto& [key, value] : row.items()) {
    if (key == "name") continue;
    if (key != "variables") return Bad(name + ": '" + api::Printable(key) + "' is no key of a profile");
    if (!value.is_array()) return Bad(name + ": variables: not a list");
    for (const json& variable : value) {
      if (Status status = ApplyVariable(variable, *profile); !status) return Fail(status.error().Wrap(name));
    }
  }
  return {};
}

}  // namespace

const std::shared_ptr<const FabricProfiles>& FabricProfiles::Default() {
  // A file that does not read ends the program here; the tests of this room keep it from being committed.
  static const auto* const kDefault = new std::shared_ptr<const FabricProfiles>(
      std::make_shared<const FabricProfiles>(FromYaml(kFabricProfilesYaml, "fabric_profiles.yaml").value()));
  return *kDefault;
}

Result<FabricProfiles> FabricProfiles::FromJson(const json& document) {
  if (!document.is_object()) return Bad("not a map with the key 'profiles'");
  bool replace = false;
  for (const auto& [key, value] : document.items()) {
    if (key == "replace") {
      if (!value.is_boolean()) return Bad("replace: neither true nor false");
      replace = value.get<bool>();
    } else if (key != "profiles") {
      return Bad("'" + api::Printable(key) + "' is no key here; the keys are replace and profiles");
    }
  }
  const auto rows = document.find("profiles");
  if (rows == document.end() || !rows->is_array()) return Bad("profiles: not a list");
  FabricProfiles out;
  if (replace) {
    for (const char* name : kNames) out.profiles_.push_back({.name = name, .variables = {}});
  } else {
    out.profiles_ = Default()->profiles_;
  }
  std::set<std::string> seen;
  for (size_t i = 0; i < rows->size(); ++i) {
    if (Status status = ApplyProfile((*rows)[i], out.profiles_, seen); !status) {
      return Fail(status.error().Wrap("profiles[" + std::to_string(i) + "]"));
    }
  }
  return out;
}

Result<FabricProfiles> FabricProfiles::FromYaml(std::string_view text, std::string_view source_name) {
  auto documents = api::LoadYaml(text, source_name);
  if (!documents) return Fail(documents.error());
  if (documents->size() != 1) {
    return Bad(std::string(source_name) + ": " + std::to_string(documents->size()) +
               " YAML documents; fabric profiles are one");
  }
  auto profiles = FromJson(documents->front());
  if (!profiles) return Fail(profiles.error().Wrap(source_name));
  return profiles;
}

const FabricProfile* FabricProfiles::Find(std::string_view name) const {
  const auto found =
      std::find_if(profiles_.begin(), profiles_.end(), [&](const FabricProfile& p) { return p.name == name; });
  return found == profiles_.end() ? nullptr : &*found;
}

}  // namespace trainyard::placement
