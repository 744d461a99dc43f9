#include "tests/operator/api/admission_table.h"

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <stdexcept>

#include "operator/api/defaults.h"
#include "operator/api/json.h"
#include "operator/api/validation.h"
#include "operator/api/yaml.h"
#include "operator/base/files.h"

namespace trainyard::api {
namespace {

using nlohmann::json;

std::vector<json> ReadYaml(const std::string& path) {
  auto text = ReadFile(path);
  if (!text) throw std::runtime_error(text.error().message);
  auto documents = LoadYaml(*text, path);
  if (!documents) throw std::runtime_error(documents.error().message);
  return *documents;
}

std::string Golden(const std::string& file) { return TRAINYARD_SOURCE_DIR "/tests/golden/crd/" + file; }

void AddObjects(const std::string& text, const std::string& place, const std::string& kind,
                std::vector<std::pair<std::string, nlohmann::json>>& out) {
  auto documents = LoadYaml(text, place);
  if (!documents) throw std::runtime_error(documents.error().message);
  for (const json& document : *documents) {
    if (document.is_object() && document.value("kind", "") == kind) out.emplace_back(place, document);
  }
}

// The fenced blocks marked yaml that hold a whole object.
void AddBlocks(const std::string& markdown, const std::string& place, const std::string& kind,
               std::vector<std::pair<std::string, nlohmann::json>>& out) {
  std::istringstream lines(markdown);
  std::string block;
  bool inside = false;
  int number = 0;
  int start = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (!inside && line.starts_with("```yaml")) {
      inside = true;
      start = number;
      block.clear();
    } else if (inside && line.starts_with("```")) {
      inside = false;
      if (block.find("kind: " + kind) != std::string::npos) {
        AddObjects(block, place + ":" + std::to_string(start), kind, out);
      }
    } else if (inside) {
      block += line + "\n";
    }
  }
}

}  // namespace

std::vector<AdmissionCase> LoadAdmissionCases(const std::string& file) {
  const json bases = ReadYaml(Golden("bases.yaml")).at(0);
  std::vector<AdmissionCase> cases;
  const json table = ReadYaml(Golden(file)).at(0);
  for (const json& entry : table) {
    AdmissionCase c;
    c.name = entry.at("name");
    c.before = bases.at(entry.at("base").get<std::string>());
    c.before["apiVersion"] = kApiVersion;
    c.before["kind"] = kKind;
    c.before["metadata"] = {{"name", c.name}};
    c.manifest = c.before;
    if (entry.contains("change")) c.manifest.merge_patch(entry["change"]);
    c.admission = entry.value("admission", "");
    c.validate = entry.value("validate", "");
    cases.push_back(std::move(c));
  }
  return cases;
}

std::vector<std::string> ErrorsOfManifest(const json& manifest) {
  std::vector<std::string> errors;
  TrainingJob job = ReadJob(manifest, errors);
  if (!errors.empty()) return errors;
  ApplyDefaults(job);
  return Validate(job);
}

std::vector<std::string> ErrorsOfUpdate(const json& before, const json& after) {
  std::vector<std::string> errors = ErrorsOfManifest(after);
  if (!errors.empty()) return errors;
  return ValidateUpdate(JobFromJson(before).value(), JobFromJson(after).value());
}

std::vector<std::pair<std::string, json>> DocumentedObjects(const std::string& kind) {
  const std::filesystem::path root = TRAINYARD_SOURCE_DIR;
  std::vector<std::filesystem::path> files = {root / "README.md"};
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root / "docs")) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<std::pair<std::string, json>> objects;
  for (const auto& path : files) {
    const std::string place = std::filesystem::relative(path, root);
    if (path.extension() == ".yaml") AddObjects(ReadFile(path).value(), place, kind, objects);
    if (path.extension() == ".md") AddBlocks(ReadFile(path).value(), place, kind, objects);
  }
  return objects;
}

}  // namespace trainyard::api
