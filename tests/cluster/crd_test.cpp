// Admission of TrainingJobs by a real API server: tests/golden/crd holds what must be refused, with the words, and what
// must be accepted; tests/operator/api holds the same tables against operator/api. One kubectl sends a whole table.
#include <gmock/gmock.h>

#include <map>
#include <sstream>

#include "operator/api/defaults.h"
#include "operator/api/json.h"
#include "tests/cluster/control_plane.h"
#include "tests/operator/api/admission_table.h"
#include "tests/operator/api/sample_jobs.h"

namespace trainyard::cluster_test {
namespace {

using api::AdmissionCase;
using api::LoadAdmissionCases;
using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;

std::string Stream(const std::vector<json>& objects) {
  std::string text;
  for (const json& object : objects) text += object.dump() + "\n---\n";
  return text;
}

std::string NameOf(const json& object) { return object["metadata"]["name"]; }

// What stands between the quotes after `before`; empty when `before` does not occur.
std::string After(const std::string& line, const std::string& before, const std::string& until) {
  size_t begin = line.find(before);
  if (begin == std::string::npos) return "";
  begin += before.size();
  return line.substr(begin, line.find(until, begin) - begin);
}

// What the API server says of the object, without the words around it:
//   ... "tiny" is invalid: spec.steps: ...    or, several,    ... "tiny" is invalid: [spec.steps: ..., spec.gpus: ...]
std::string ReasonOf(const std::string& line) {
  const std::string strict = "strict decoding error";
  if (size_t at = line.find(strict); at != std::string::npos) return line.substr(at);
  const std::string invalid = "is invalid: ";
  const size_t at = line.find(invalid);
  if (at == std::string::npos) return line;
  std::string reason = line.substr(at + invalid.size());
  if (reason.starts_with('[') && reason.ends_with(']')) reason = reason.substr(1, reason.size() - 2);
  // Said whenever a type or an enum value is wrong; see docs/api.md.
  const size_t more = reason.find(", <nil>: Invalid value: null: some validation rules were not checked");
  return more == std::string::npos ? reason : reason.substr(0, more);
}

// Object name -> what the API server says against it. Every object that is not named was accepted.
std::map<std::string, std::string> Refused(const Ran& ran) {
  std::map<std::string, std::string> refused;
  std::istringstream lines(ran.err);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("Warning:")) continue;
    refused[After(line, "TrainingJob.trainyard.dev \"", "\"")] = ReasonOf(line);
  }
  return refused;
}

// An unknown field is refused without the object's name.
bool Strict(const AdmissionCase& c) { return c.admission.starts_with("strict decoding error"); }

void ExpectRefusals(const ControlPlane& plane, const std::vector<std::string>& command,
                    const std::vector<AdmissionCase>& cases) {
  std::vector<json> objects;
  for (const AdmissionCase& c : cases) {
    if (Strict(c)) {
      EXPECT_EQ(Refused(plane.Kubectl(command, c.manifest.dump()))[""], c.admission) << c.name;
    } else {
      objects.push_back(c.manifest);
    }
  }
  const Ran ran = plane.Kubectl(command, Stream(objects));
  EXPECT_EQ(ran.out, "") << "accepted, but must not be";
  std::map<std::string, std::string> refused = Refused(ran);
  for (const AdmissionCase& c : cases) {
    if (Strict(c)) continue;
    EXPECT_EQ(refused[NameOf(c.manifest)], c.admission) << c.name;
  }
}

void Create(const ControlPlane& plane, const std::string& ns, const std::vector<AdmissionCase>& cases) {
  std::vector<json> objects;
  for (const AdmissionCase& c : cases) objects.push_back(c.before);
  plane.MustKubectl({"-n", ns, "create", "-f", "-"}, Stream(objects));
}

TEST(CrdAdmission, RefusesBadManifestsInTheWordsOfTheTable) {
  TRAINYARD_NEEDS_CLUSTER(plane);
  const std::string ns = plane->FreshNamespace("crd");
  ExpectRefusals(*plane, {"-n", ns, "create", "--dry-run=server", "-f", "-"}, LoadAdmissionCases("bad.yaml"));
}

TEST(CrdAdmission, AcceptsGoodManifests) {
  TRAINYARD_NEEDS_CLUSTER(plane);
  const std::string ns = plane->FreshNamespace("crd");
  std::vector<json> objects;
  for (const AdmissionCase& c : LoadAdmissionCases("good.yaml")) objects.push_back(c.manifest);
  const Ran ran = plane->Kubectl({"-n", ns, "create", "--dry-run=server", "-f", "-"}, Stream(objects));
  EXPECT_EQ(ran.err, "");
  EXPECT_EQ(static_cast<size_t>(std::count(ran.out.begin(), ran.out.end(), '\n')), objects.size());
}

TEST(CrdAdmission, RefusesForbiddenUpdatesInTheWordsOfTheTable) {
  TRAINYARD_NEEDS_CLUSTER(plane);
  const std::string ns = plane->FreshNamespace("crd");
  const auto cases = LoadAdmissionCases("updates_refused.yaml");
  Create(*plane, ns, cases);
  ExpectRefusals(*plane, {"-n", ns, "replace", "--dry-run=server", "-f", "-"}, cases);
}

TEST(CrdAdmission, AcceptsEveryUpdateThatAJobCanFollow) {
  TRAINYARD_NEEDS_CLUSTER(plane);
  const std::string ns = plane->FreshNamespace("crd");
  const auto cases = LoadAdmissionCases("updates_accepted.yaml");
  Create(*plane, ns, cases);
  std::vector<json> objects;
  for (const AdmissionCase& c : cases) objects.push_back(c.manifest);
  EXPECT_EQ(plane->Kubectl({"-n", ns, "replace", "-f", "-"}, Stream(objects)).err, "");
}

TEST(CrdAdmission, AcceptsEveryDocumentedJob) {
  TRAINYARD_NEEDS_CLUSTER(plane);
  const std::string ns = plane->FreshNamespace("crd");
  for (const auto& [place, job] : api::DocumentedObjects(api::kKind)) {
    EXPECT_EQ(plane->Kubectl({"-n", ns, "apply", "--dry-run=server", "-f", "-"}, job.dump()).err, "") << place;
  }
}

TEST(CrdAdmission, AcceptsEveryDocumentedPriorityClass) {
  TRAINYARD_NEEDS_CLUSTER(plane);
  const auto classes = api::DocumentedObjects("PriorityClass");
  EXPECT_FALSE(classes.empty());
  for (const auto& [place, object] : classes) {
    EXPECT_EQ(plane->Kubectl({"apply", "--dry-run=server", "-f", "-"}, object.dump()).err, "") << place;
  }
}

TEST(CrdAdmission, RefusesForbiddenSizesThroughTheScaleSubresource) {
  TRAINYARD_NEEDS_CLUSTER(plane);
  const std::string ns = plane->FreshNamespace("crd");
  const auto bases = LoadAdmissionCases("updates_refused.yaml");
  auto job_of = [&](const char* name) {
    const auto found = std::find_if(bases.begin(), bases.end(), [&](const auto& c) { return c.name == name; });
    return found->before;
  };
  json plain = job_of("seed");           // any size up to the batch of 512
  json elastic = job_of("data-format");  // 4 GPUs, 2 to 8, 2 per node, batch 16
  plain["metadata"]["name"] = "plain";
  elastic["metadata"]["name"] = "elastic";
  plane->MustKubectl({"-n", ns, "create", "-f", "-"}, Stream({plain, elastic}));
  struct Case {
    const char* job;
    const char* replicas;
    const char* says;
  };
  const Case cases[] = {
      {"plain", "513", "spec.gpus.count: Forbidden: 513 is more than spec.training.globalBatchSize 512"},
      {"plain", "70000", "spec.gpus.count in body should be less than or equal to 65536"},
      {"elastic", "10", "spec.gpus.count: Forbidden: 10 is more than maxCount 8"},
      {"elastic", "18", "spec.gpus.count: Forbidden: 18 is more than spec.training.globalBatchSize 16"},
      {"elastic", "1", "spec.gpus.minCount: Forbidden: 2 is more than count 1"},
      {"elastic", "5", "spec.gpus.count: Forbidden: 5 is not divisible by perNode 2; every node gets the same number"},
  };
  for (const Case& c : cases) {
    const Ran ran =
        plane->Kubectl({"-n", ns, "scale", std::string("tj/") + c.job, std::string("--replicas=") + c.replicas});
    EXPECT_NE(ran.code, 0) << c.replicas;
    EXPECT_THAT(ran.err, HasSubstr(c.says)) << c.job << " to " << c.replicas;
  }
  // kubectl itself refuses a negative number; other clients ask the API server.
  json scale = json::parse(plane->MustKubectl({"-n", ns, "get", "tj", "plain", "--subresource=scale", "-o", "json"}));
  scale["spec"]["replicas"] = -1;
  const std::string path = "/apis/trainyard.dev/v1alpha1/namespaces/" + ns + "/trainingjobs/plain/scale";
  EXPECT_THAT(plane->Kubectl({"replace", "--raw", path, "-f", "-"}, scale.dump()).err,
              HasSubstr("should be a non-negative integer"));
}

TEST(CrdAdmission, ScalesThroughTheSubresource) {
  TRAINYARD_NEEDS_CLUSTER(plane);
  const std::string ns = plane->FreshNamespace("crd");
  plane->MustKubectl({"-n", ns, "create", "-f", "-"}, api::MinimalTrainerManifest().dump());
  plane->MustKubectl({"-n", ns, "scale", "tj/tiny", "--replicas=4"});
  EXPECT_EQ(plane->MustKubectl({"-n", ns, "get", "tj", "tiny", "-o", "jsonpath={.spec.gpus.count}"}), "4");
  plane->MustKubectl({"-n", ns, "scale", "tj/tiny", "--current-replicas=4", "--replicas=2"});
  EXPECT_EQ(plane->MustKubectl({"-n", ns, "get", "tj", "tiny", "-o", "jsonpath={.spec.gpus.count}"}), "2");
}

TEST(CrdAdmission, StoresTheMinimalManifestsWithTheDefaultsOfTheApi) {
  TRAINYARD_NEEDS_CLUSTER(plane);
  const std::string ns = plane->FreshNamespace("crd");
  for (const json& manifest : {api::MinimalTrainerManifest(), api::MinimalImageManifest()}) {
    const json stored = json::parse(plane->MustKubectl({"-n", ns, "create", "-o", "json", "-f", "-"}, manifest.dump()));
    const api::TrainingJob job = api::JobFromJson(stored).value();
    api::TrainingJob ours = api::JobFromJson(manifest).value();
    EXPECT_EQ(stored["spec"], api::SpecToJson(ours.spec)) << "stored -> meant by operator/api:\n"
                                                          << json::diff(stored["spec"], api::SpecToJson(ours.spec));
    api::TrainingJob read = job;
    api::ApplyDefaults(read);
    api::ApplyDefaults(ours);
    EXPECT_EQ(api::SpecToJson(read.spec), api::SpecToJson(ours.spec));
    EXPECT_EQ(job.meta.ns, ns);
    EXPECT_EQ(job.meta.generation, 1);
    EXPECT_FALSE(job.meta.uid.empty());
  }
}

TEST(CrdAdmission, TakesANullForAFieldLeftOut) {
  TRAINYARD_NEEDS_CLUSTER(plane);
  const std::string ns = plane->FreshNamespace("crd");
  json manifest = api::MinimalTrainerManifest();
  for (const char* field : {"image", "gpus", "training", "env", "suspend"}) manifest["spec"][field] = nullptr;
  const json stored = json::parse(plane->MustKubectl({"-n", ns, "create", "-o", "json", "-f", "-"}, manifest.dump()));
  EXPECT_EQ(stored["spec"], api::SpecToJson(api::JobFromJson(manifest)->spec));
}

TEST(CrdAdmission, DropsUnknownFieldsOnlyFromThoseWhoDoNotAsk) {
  TRAINYARD_NEEDS_CLUSTER(plane);
  const std::string ns = plane->FreshNamespace("crd");
  json manifest = api::MinimalTrainerManifest();
  manifest["spec"]["gpu"] = 8;
  EXPECT_THAT(plane->Kubectl({"-n", ns, "create", "-f", "-"}, manifest.dump()).err,
              HasSubstr("unknown field \"spec.gpu\""));
  const json stored = json::parse(
      plane->MustKubectl({"-n", ns, "create", "--validate=false", "-o", "json", "-f", "-"}, manifest.dump()));
  EXPECT_FALSE(stored["spec"].contains("gpu"));
}

}  // namespace
}  // namespace trainyard::cluster_test
