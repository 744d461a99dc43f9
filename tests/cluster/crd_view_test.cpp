// What users see of TrainingJobs through kubectl: columns, explanations, subresources.
#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "operator/api/json.h"
#include "operator/api/yaml.h"
#include "operator/base/files.h"
#include "tests/cluster/control_plane.h"
#include "tests/operator/api/sample_jobs.h"

namespace trainyard::cluster_test {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

const char kCrdFile[] = TRAINYARD_SOURCE_DIR "/crds/trainingjobs.yaml";

std::vector<std::string> Words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// Without line breaks and runs of blanks.
std::string Flat(const std::string& text) {
  std::string flat;
  for (const std::string& word : Words(text)) flat += (flat.empty() ? "" : " ") + word;
  return flat;
}

// A job with the status of a run, written through the status subresource as the operator does.
void CreateRunning(const ControlPlane& plane, const std::string& ns) {
  plane.MustKubectl({"-n", ns, "create", "-f", "-"}, api::MinimalTrainerManifest().dump());
  json status = api::StatusToJson(api::FullJob().status);
  status["phase"] = "Running";
  status["reason"] = "4 of 4 ranks train";
  plane.MustKubectl(
      {"-n", ns, "patch", "tj", "tiny", "--subresource=status", "--type=merge", "-p", json{{"status", status}}.dump()});
}

TEST(CrdView, IsStructuralAndEstablished) {
  TRAINYARD_NEEDS_CLUSTER(plane);
  const std::string path = "jsonpath={range .status.conditions[*]}{.type}={.status} {end}";
  const std::string conditions = plane->MustKubectl({"get", "crd", "trainingjobs.trainyard.dev", "-o", path});
  EXPECT_THAT(Words(conditions), testing::UnorderedElementsAre("Established=True", "NamesAccepted=True"));
  // What the tree holds is what the cluster has: applying it again, by whatever means, changes nothing.
  EXPECT_THAT(plane->MustKubectl({"apply", "--server-side", "--dry-run=server", "--force-conflicts", "-f", kCrdFile}),
              HasSubstr("serverside-applied"));
  EXPECT_EQ(plane->Kubectl({"replace", "--dry-run=server", "-f", kCrdFile}).code, 0);
}

TEST(CrdView, PrintsColumnsThatReadWell) {
  TRAINYARD_NEEDS_CLUSTER(plane);
  const std::string ns = plane->FreshNamespace("crd");
  CreateRunning(*plane, ns);
  std::istringstream table(plane->MustKubectl({"-n", ns, "get", "tj"}));
  std::string head, row;
  std::getline(table, head);
  std::getline(table, row);
  EXPECT_THAT(Words(head),
              ElementsAre("NAME", "PHASE", "GPUS", "PRODUCT", "STEP", "LOSS", "TOKENS/S", "CHECKPOINT", "AGE"));
  std::vector<std::string> cells = Words(row);
  ASSERT_EQ(cells.size(), 9u) << row;
  cells.pop_back();  // the age
  EXPECT_THAT(cells, ElementsAre("tiny", "Running", "2", "H100-SXM", "120", "2.5", "1234.5", "100"));
  const std::string wide = plane->MustKubectl({"-n", ns, "get", "tj", "-o", "wide"});
  EXPECT_THAT(wide, HasSubstr("STRATEGY"));
  EXPECT_THAT(wide, HasSubstr("REASON"));
  EXPECT_THAT(wide, HasSubstr("ZeRO2"));
  EXPECT_THAT(wide, HasSubstr("4 of 4 ranks train"));
  // A job that nobody has looked at yet.
  json fresh = api::MinimalImageManifest();
  fresh["metadata"]["name"] = "fresh";
  plane->MustKubectl({"-n", ns, "create", "-f", "-"}, fresh.dump());
  EXPECT_EQ(Words(plane->MustKubectl({"-n", ns, "get", "tj", "fresh", "--no-headers"})).size(), 2u) << "name and age";
}

TEST(CrdView, StoresEveryFieldOfTheStatus) {
  TRAINYARD_NEEDS_CLUSTER(plane);
  const std::string ns = plane->FreshNamespace("crd");
  CreateRunning(*plane, ns);
  const json stored = json::parse(plane->MustKubectl({"-n", ns, "get", "tj", "tiny", "-o", "json"}));
  json expected = api::StatusToJson(api::FullJob().status);
  expected["phase"] = "Running";
  expected["reason"] = "4 of 4 ranks train";
  EXPECT_EQ(stored["status"], expected) << json::diff(stored["status"], expected);
  EXPECT_EQ(stored["metadata"]["generation"], 1) << "a status is no new generation";
}

TEST(CrdView, TellsSizeAndSelectorToTheScaleSubresource) {
  TRAINYARD_NEEDS_CLUSTER(plane);
  const std::string ns = plane->FreshNamespace("crd");
  CreateRunning(*plane, ns);
  plane->MustKubectl({"-n", ns, "scale", "tj/tiny", "--replicas=8"});
  const json scale =
      json::parse(plane->MustKubectl({"-n", ns, "get", "tj", "tiny", "--subresource=scale", "-o", "json"}));
  EXPECT_EQ(scale["spec"]["replicas"], 8);
  EXPECT_EQ(scale["status"]["replicas"], 2);
  EXPECT_EQ(scale["status"]["selector"], "trainyard.dev/job-uid=x");
}

// Field -> description, of one page of kubectl explain.
std::map<std::string, std::string> Explained(const std::string& page) {
  std::map<std::string, std::string> fields;
  std::istringstream lines(page.substr(page.find("FIELDS:") + 7));
  std::string field;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("  ") && line.find('\t') != std::string::npos) {
      field = line.substr(2, line.find('\t') - 2);
      fields[field] = "";
    } else if (line.starts_with("    ") && !field.empty()) {
      fields[field] += line + " ";
    }
  }
  return fields;
}

void ExpectExplained(const ControlPlane& plane, const json& schema, const std::string& path) {
  std::map<std::string, std::string> fields = Explained(plane.MustKubectl({"explain", path}));
  for (const auto& [name, sub] : schema.at("properties").items()) {
    const std::string said = Flat(fields[name]);
    EXPECT_THAT(said, testing::EndsWith(Flat(sub.at("description")))) << path << "." << name;
    const json& inner = sub.contains("items") ? sub["items"] : sub;
    if (inner.contains("properties")) ExpectExplained(plane, inner, path + "." + name);
  }
  EXPECT_EQ(fields.size(), schema["properties"].size()) << path;
}

void CollectNames(const json& schema, std::vector<std::string>& out) {
  const json properties = schema.value("properties", json::object());
  for (const auto& [name, sub] : properties.items()) {
    out.push_back(name);
    CollectNames(sub.contains("items") ? sub["items"] : sub, out);
  }
}

TEST(CrdView, ExplainsEveryField) {
  TRAINYARD_NEEDS_CLUSTER(plane);
  const json crd = api::LoadYaml(ReadFile(kCrdFile).value(), kCrdFile).value().at(0);
  const json& root = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
  for (const char* part : {"spec", "status"}) {
    const std::string path = std::string("trainingjob.") + part;
    ExpectExplained(*plane, root[part], path);
    // --recursive lists the same fields, as a tree.
    const std::string tree = plane->MustKubectl({"explain", path, "--recursive"});
    std::vector<std::string> wanted;
    CollectNames(root[part], wanted);
    std::vector<std::string> listed;
    std::istringstream lines(tree.substr(tree.find("FIELDS:")));
    for (std::string line; std::getline(lines, line);) {
      if (line.find('\t') != std::string::npos) listed.push_back(Words(line).front());
    }
    EXPECT_THAT(listed, testing::UnorderedElementsAreArray(wanted)) << path;
  }
}

}  // namespace
}  // namespace trainyard::cluster_test
