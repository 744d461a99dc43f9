// YAML in and out as JSON values. Scalars are read by the core schema of YAML 1.2: yes, no, on and off are strings, and
// what is quoted stays a string; a plain 010 or 0x10 is an error rather than a guess, since YAML 1.1 and 1.2 disagree
// on its value. Duplicate keys, aliases that nest without end and merge keys are errors. Thread-safety: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/base/error.h"

namespace trainyard::api {

// Every non-empty document of `text`, which may be JSON as well. `source_name` opens the error messages:
// "job.yaml:3:7: ...". Error: kInvalidArgument.
Result<std::vector<nlohmann::json>> LoadYaml(std::string_view text, std::string_view source_name);

// Block style, keys in the order of the JSON value, strings quoted where a YAML 1.1 or 1.2 reader would take them for
// something else. Ends with a newline.
std::string ToYaml(const nlohmann::json& value);

}  // namespace trainyard::api
