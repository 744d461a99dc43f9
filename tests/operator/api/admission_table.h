// The tables of tests/golden/crd: manifests and updates that must be refused or accepted. One table drives both sides,
// so that api::Validate and the CRD in a real API server agree. Thread-safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace trainyard::api {

struct AdmissionCase {
  std::string name;         // also the object's name, unless the case changes that
  nlohmann::json before;    // the base, as an object of that name
  nlohmann::json manifest;  // the base with the change
  std::string admission;    // what the API server says; empty: it accepts
  std::string validate;     // how the first error of api::Validate begins; empty: it accepts
};

// Reads tests/golden/crd/<file>. Throws std::runtime_error when the table cannot be read: no test can go on then.
std::vector<AdmissionCase> LoadAdmissionCases(const std::string& file);

// What operator/api says of a manifest, as `trainyard run` does before it accepts a job.
std::vector<std::string> ErrorsOfManifest(const nlohmann::json& manifest);
// The same of an update; both manifests can be read.
std::vector<std::string> ErrorsOfUpdate(const nlohmann::json& before, const nlohmann::json& after);

// Every document of this kind in docs/ and README.md, in YAML files and in fenced blocks of Markdown, each with
// the place it stands in.
std::vector<std::pair<std::string, nlohmann::json>> DocumentedObjects(const std::string& kind);

}  // namespace trainyard::api
