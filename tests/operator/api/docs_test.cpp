// docs/api.md against the CRD and operator/api: the same fields both ways, their types, defaults and limits, and which
// of them may not change once the job exists.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "operator/api/json.h"
#include "operator/api/validation.h"
#include "operator/api/yaml.h"
#include "operator/base/files.h"
#include "tests/operator/api/sample_jobs.h"

namespace trainyard::api {
namespace {

using nlohmann::json;

json SchemaOf(const char* part) {
  const std::string path = TRAINYARD_SOURCE_DIR "/crds/trainingjobs.yaml";
  return LoadYaml(ReadFile(path).value(), path)
      .value()
      .at(0)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"][part];
}

std::string Trim(const std::string& text) {
  const size_t begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

// Rows whose first cell is `spec...` or `status...`: path -> the other cells.
std::map<std::string, std::vector<std::string>> RowsOf(const std::string& part) {
  std::map<std::string, std::vector<std::string>> rows;
  std::istringstream lines(ReadFile(TRAINYARD_SOURCE_DIR "/docs/api.md").value());
  const std::string opening = "| `" + part + ".";
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(opening)) continue;
    std::vector<std::string> cells;
    std::istringstream row(line.substr(1));
    for (std::string cell; std::getline(row, cell, '|');) cells.push_back(Trim(cell));
    const std::string path = cells.front().substr(1, cells.front().size() - 2);
    cells.erase(cells.begin());
    EXPECT_TRUE(rows.emplace(path, cells).second) << path << " stands in two rows";
  }
  return rows;
}

// A field of the schema, as docs/api.md writes it.
struct Field {
  std::string type, value, limits;  // `value`: the default, "required", or empty
  json schema;
};

std::string Number(const json& value) {
  return value.is_number_float() && value.get<double>() == value.get<int64_t>() ? std::to_string(value.get<int64_t>())
                                                                                : value.dump();
}

std::string TypeOf(const json& schema) {
  if (schema.value("x-kubernetes-int-or-string", false)) return "integer or string";
  const std::string type = schema.at("type");
  if (type == "array") return "list of " + TypeOf(schema["items"]) + "s";
  return schema.contains("additionalProperties") ? "map of " + TypeOf(schema["additionalProperties"]) + "s" : type;
}

std::string LimitsOf(const json& schema) {
  if (schema.contains("enum")) {
    std::string text;
    for (const json& name : schema["enum"]) text += (text.empty() ? "`" : ", `") + name.get<std::string>() + "`";
    return text;
  }
  std::string text;
  auto add = [&](const std::string& more) { text += (text.empty() ? "" : ", ") + more; };
  if (schema.contains("minimum")) {
    add((schema.value("exclusiveMinimum", false) ? "more than " : "at least ") + Number(schema["minimum"]));
  }
  if (schema.contains("maximum")) {
    add((schema.value("exclusiveMaximum", false) ? "less than " : "at most ") + Number(schema["maximum"]));
  }
  if (schema.contains("maxLength")) add("at most " + Number(schema["maxLength"]) + " characters");
  if (schema.contains("minItems") && schema["minItems"] == schema["maxItems"]) {
    add(Number(schema["minItems"]) + " items");
  } else if (schema.contains("maxItems")) {
    add("at most " + Number(schema["maxItems"]) + " items");
  }
  return text;
}

void Collect(const json& schema, const std::string& path, std::map<std::string, Field>& out) {
  const json properties = schema.value("properties", json::object());
  const json required = schema.value("required", json::array());
  for (const auto& [name, sub] : properties.items()) {
    const bool needed = std::find(required.begin(), required.end(), name) != required.end();
    std::string value = needed ? "required" : "";
    if (sub.contains("default") && sub["type"] != "object") {
      value = "`" + (sub["default"].is_string() ? sub["default"].get<std::string>() : sub["default"].dump()) + "`";
    }
    const std::string below = path + "." + name;
    out[below] = {TypeOf(sub), value, LimitsOf(sub), sub};
    Collect(sub, below, out);
    if (sub.contains("items")) Collect(sub["items"], below + "[]", out);
  }
}

void ExpectSameFields(const std::map<std::string, std::vector<std::string>>& rows,
                      const std::map<std::string, Field>& fields) {
  for (const auto& [path, field] : fields) {
    EXPECT_TRUE(rows.contains(path)) << path << " is in the CRD but not in docs/api.md";
  }
  for (const auto& [path, cells] : rows) {
    EXPECT_TRUE(fields.contains(path)) << path << " is in docs/api.md but not in the CRD";
  }
}

TEST(ApiDocs, HaveEveryFieldOfTheSpecWithTypeDefaultAndLimits) {
  std::map<std::string, Field> fields;
  Collect(SchemaOf("spec"), "spec", fields);
  const auto rows = RowsOf("spec");
  ExpectSameFields(rows, fields);
  for (const auto& [path, cells] : rows) {
    ASSERT_EQ(cells.size(), 5u) << path << ": type, default, limits, change, meaning";
    const Field& field = fields[path];
    EXPECT_EQ(cells[0], field.type) << path;
    EXPECT_EQ(cells[1], field.value) << path;
    EXPECT_EQ(cells[2], field.limits) << path;
    EXPECT_FALSE(cells[4].empty()) << path;
  }
}

TEST(ApiDocs, HaveEveryFieldOfTheStatus) {
  std::map<std::string, Field> fields;
  Collect(SchemaOf("status"), "status", fields);
  const auto rows = RowsOf("status");
  ExpectSameFields(rows, fields);
  for (const auto& [path, cells] : rows) {
    ASSERT_EQ(cells.size(), 2u) << path << ": type, meaning";
    EXPECT_EQ(cells[0], fields[path].type) << path;
    EXPECT_FALSE(cells[1].empty()) << path;
  }
}

// Another value of the same type that can be read; null where the schema allows one value only.
json Other(const json& value, const json& schema) {
  if (schema.contains("enum")) {
    for (const json& name : schema["enum"]) {
      if (name != value) return name;
    }
    return nullptr;
  }
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number_integer()) return value.get<int64_t>() - 1;
  if (value.is_number()) return value.get<double>() / 2;
  if (value.is_string()) return value.get<std::string>() + "x";
  json longer = value;
  if (value.is_object()) {
    longer["another"] = value.front();
    return longer;
  }
  longer.push_back(value.at(0));
  return longer;
}

TEST(ApiDocs, SayWhichFieldsCannotChange) {
  std::map<std::string, Field> fields;
  Collect(SchemaOf("spec"), "spec", fields);
  const json full = JobToJson(FullJob());
  int tried = 0;
  for (const auto& [path, cells] : RowsOf("spec")) {
    const json& schema = fields[path].schema;
    if (schema.contains("properties") || TypeOf(schema) == "object") {
      EXPECT_EQ(cells[3], "") << path << ": the fields inside say it";
      continue;
    }
    EXPECT_THAT(cells[3], testing::AnyOf("immutable", "next attempt", "resize", "at once")) << path;
    std::string pointer = "/" + path;
    for (size_t at; (at = pointer.find("[].")) != std::string::npos;) pointer.replace(at, 3, "/0/");
    std::replace(pointer.begin(), pointer.end(), '.', '/');
    const json::json_pointer where(pointer);
    const json other = Other(full.at(where), schema);
    if (other.is_null()) continue;
    json changed = full;
    changed[where] = other;
    auto job = JobFromJson(changed);
    ASSERT_TRUE(job) << path << ": " << job.error().message;
    EXPECT_EQ(!ValidateUpdate(FullJob(), *job).empty(), cells[3] == "immutable") << path;
    ++tried;
  }
  EXPECT_GT(tried, 60);
}

}  // namespace
}  // namespace trainyard::api
