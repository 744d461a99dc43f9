// The tables of tests/golden/crd against operator/api; tests/cluster holds the same tables against a real API server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "operator/api/training_job.h"
#include "operator/api/yaml.h"
#include "operator/base/files.h"
#include "tests/operator/api/admission_table.h"

namespace trainyard::api {
namespace {

using nlohmann::json;
using testing::IsEmpty;
using testing::StartsWith;

std::string PathOf(const std::string& message) { return message.substr(0, message.find(": ")); }

// Both name the same field, or one of them a part of the other's.
bool SamePlace(const std::string& a, const std::string& b) { return a.starts_with(b) || b.starts_with(a); }

void ExpectRefusal(const AdmissionCase& c, const std::vector<std::string>& errors) {
  ASSERT_FALSE(errors.empty()) << c.name << " is accepted";
  ASSERT_FALSE(c.validate.empty()) << c.name << ": the table says nothing, operator/api says " << errors.front();
  EXPECT_THAT(errors.front(), StartsWith(c.validate)) << c.name;
  // An unknown field is told before the object is read, and with its path at the end.
  if (c.admission.starts_with("strict decoding error")) {
    EXPECT_NE(c.admission.find("\"" + PathOf(errors.front()) + "\""), std::string::npos) << c.name;
  } else {
    EXPECT_PRED2(SamePlace, PathOf(errors.front()), PathOf(c.admission)) << c.name;
  }
}

TEST(Admission, ValidateRefusesWhatTheApiServerRefuses) {
  const auto cases = LoadAdmissionCases("bad.yaml");
  EXPECT_GE(cases.size(), 40u);
  for (const AdmissionCase& c : cases) ExpectRefusal(c, ErrorsOfManifest(c.manifest));
}

TEST(Admission, ValidateAcceptsWhatTheApiServerAccepts) {
  const auto cases = LoadAdmissionCases("good.yaml");
  EXPECT_GE(cases.size(), 15u);
  for (const AdmissionCase& c : cases) EXPECT_THAT(ErrorsOfManifest(c.manifest), IsEmpty()) << c.name;
}

TEST(Admission, ValidateUpdateRefusesWhatTheApiServerRefuses) {
  const auto cases = LoadAdmissionCases("updates_refused.yaml");
  EXPECT_GE(cases.size(), 15u);
  for (const AdmissionCase& c : cases) {
    EXPECT_THAT(ErrorsOfManifest(c.before), IsEmpty()) << c.name;
    ExpectRefusal(c, ErrorsOfUpdate(c.before, c.manifest));
  }
}

TEST(Admission, ValidateUpdateAcceptsWhatTheApiServerAccepts) {
  for (const AdmissionCase& c : LoadAdmissionCases("updates_accepted.yaml")) {
    EXPECT_THAT(ErrorsOfUpdate(c.before, c.manifest), IsEmpty()) << c.name;
  }
}

TEST(Admission, NamesEachCaseOnce) {
  std::set<std::string> names;
  for (const char* file : {"bad.yaml", "good.yaml", "updates_refused.yaml", "updates_accepted.yaml"}) {
    for (const AdmissionCase& c : LoadAdmissionCases(file)) EXPECT_TRUE(names.insert(c.name).second) << c.name;
  }
}

TEST(Admission, AcceptsEveryDocumentedJob) {
  const auto jobs = DocumentedObjects(kKind);
  EXPECT_GE(jobs.size(), 4u);
  for (const auto& [place, job] : jobs) EXPECT_THAT(ErrorsOfManifest(job), IsEmpty()) << place;
}

std::string Escaped(const std::string& text) {
  static const std::regex special(R"([.^$|()\[\]{}*+?\\])");
  return std::regex_replace(text, special, R"(\$&)");
}

// A regular expression for what a rule says: its message, or the text of its messageExpression with anything for %d,
// %s.
std::string Saying(const json& rule) {
  std::string text = rule.at("message");
  if (rule.contains("messageExpression")) {
    const std::string expression = rule["messageExpression"];
    const size_t end = expression.find(std::string(1, expression[0]) + ".format(");
    EXPECT_NE(end, std::string::npos) << expression;
    text = expression.substr(1, end - 1);
  }
  static const std::regex hole("%[ds]");
  return std::regex_replace(Escaped(text), hole, ".*");
}

void CollectRules(const json& schema, const std::string& path, std::vector<std::pair<std::string, json>>& out) {
  for (const json& rule : schema.value("x-kubernetes-validations", json::array())) out.emplace_back(path, rule);
  const json properties = schema.value("properties", json::object());
  for (const auto& [name, sub] : properties.items()) CollectRules(sub, path.empty() ? name : path + "." + name, out);
  if (schema.contains("items")) CollectRules(schema["items"], path + "[]", out);
}

TEST(Admission, TheTablesTryEveryRuleOfTheCrd) {
  const std::string path = TRAINYARD_SOURCE_DIR "/crds/trainingjobs.yaml";
  const json crd = LoadYaml(ReadFile(path).value(), path).value().at(0);
  std::vector<std::pair<std::string, json>> rules;
  CollectRules(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "", rules);
  EXPECT_GT(rules.size(), 50u);
  std::vector<std::string> said;
  for (const char* file : {"bad.yaml", "updates_refused.yaml"}) {
    for (const AdmissionCase& c : LoadAdmissionCases(file)) said.push_back(c.admission);
  }
  for (const auto& [at, rule] : rules) {
    std::string place = at + rule.value("fieldPath", "");
    if (place.starts_with('.')) place.erase(0, 1);
    static const std::regex item(R"(\\\[\\\])");  // "[]" as Escaped leaves it
    const std::regex saying(std::regex_replace(Escaped(place), item, R"(\[\d+\])") + ": .*" + Saying(rule));
    const bool tried =
        std::any_of(said.begin(), said.end(), [&](const std::string& text) { return std::regex_search(text, saying); });
    EXPECT_TRUE(tried) << place << ": " << rule["rule"];
  }
}

}  // namespace
}  // namespace trainyard::api
