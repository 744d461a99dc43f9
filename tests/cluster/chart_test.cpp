// What charts/trainyard renders, for which values, and what it refuses. Needs helm and no cluster.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>
#include <sstream>

#include "operator/api/yaml.h"
#include "tests/cluster/chart.h"
#include "trainer/contract/contract.h"

namespace trainyard::cluster_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string kGolden = TRAINYARD_SOURCE_DIR "/tests/golden/chart/";
// As on a cluster with the Prometheus operator.
const std::vector<std::string> kMonitoring = {"--api-versions", "monitoring.coreos.com/v1"};
// Everything that is off by default and has values of its own.
const std::vector<std::string> kAllOn = {"--api-versions", "monitoring.coreos.com/v1", "--set-json",
                                         "networkPolicy.enabled=true,metrics.serviceMonitor.enabled=true"};

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path << " cannot be read";
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

json LoadOne(const std::string& path) {
  auto documents = api::LoadYaml(ReadFile(path), path);
  EXPECT_TRUE(documents) << documents.error().message;
  return documents && !documents->empty() ? documents->at(0) : json();
}

std::vector<std::string> Plus(std::vector<std::string> flags, const std::vector<std::string>& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

// The CRD has a test of its own; here it would only repeat crds/.
std::string WithoutCrd(const std::string& rendering) {
  std::string kept;
  std::istringstream lines(rendering);
  std::string chunk;
  const auto flush = [&] {
    if (chunk.find("# Source: trainyard/templates/crd.yaml\n") == std::string::npos) kept += chunk;
    chunk.clear();
  };
  for (std::string line; std::getline(lines, line);) {
    if (line == "---") flush();
    chunk += line + "\n";
  }
  flush();
  return kept;
}

std::vector<std::string> ValuesFiles() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kGolden)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".values.yaml")) names.push_back(name.substr(0, name.size() - 12));
  }
  std::sort(names.begin(), names.end());
  EXPECT_GE(names.size(), 4u);
  return names;
}

TEST(Chart, RendersAsInTheGoldenFiles) {
  TRAINYARD_NEEDS_HELM();
  for (const std::string& name : ValuesFiles()) {
    const Ran ran = Render(Plus(kMonitoring, {"--values", kGolden + name + ".values.yaml"}));
    ASSERT_EQ(ran.code, 0) << name << ": " << ran.err;
    const std::string path = kGolden + name + ".yaml";
    const std::string text = WithoutCrd(ran.out);
    if (std::getenv("UPDATE_GOLDEN") != nullptr) std::ofstream(path) << text;
    EXPECT_EQ(text, ReadFile(path)) << path << " differs; UPDATE_GOLDEN=1 rewrites it";
  }
}

TEST(Chart, PassesTheStrictLinterWithEveryValuesFile) {
  TRAINYARD_NEEDS_HELM();
  for (const std::string& name : ValuesFiles()) {
    const Ran ran = Helm(Plus({"lint", "--strict", kChart, "--values", kGolden + name + ".values.yaml", "--set",
                               "metrics.serviceMonitor.enabled=false"},
                              {}));
    EXPECT_EQ(ran.code, 0) << name << ":\n" << ran.out << ran.err;
  }
}

TEST(Chart, PackedItRendersTheSame) {
  TRAINYARD_NEEDS_HELM();
  std::string dir = (std::filesystem::temp_directory_path() / "trainyard-chart-XXXXXX").string();
  ASSERT_NE(mkdtemp(dir.data()), nullptr);
  const Ran packed = Helm({"package", kChart, "--destination", dir});
  EXPECT_EQ(packed.code, 0) << packed.err;
  EXPECT_EQ(Render(kAllOn, dir + "/trainyard-0.1.0.tgz").out, Render(kAllOn).out);
  std::filesystem::remove_all(dir);
}

TEST(Chart, HoldsTheCrdOfTheRepositoryByteForByte) {
  TRAINYARD_NEEDS_HELM();
  const std::string crd = ReadFile(TRAINYARD_SOURCE_DIR "/crds/trainingjobs.yaml");
  const std::string source = "# Source: trainyard/templates/crd.yaml\n";
  const std::string keep = "  annotations:\n    helm.sh/resource-policy: keep\n";

  const std::string unkept = Render({"--set", "crds.keep=false"}).out;
  EXPECT_THAT(unkept, HasSubstr(source + crd)) << "crds.keep=false: the text as it is in crds/";

  std::string kept = Render({}).out;
  const size_t at = kept.find(keep);
  ASSERT_NE(at, std::string::npos);
  EXPECT_THAT(kept.erase(at, keep.size()), HasSubstr(source + crd));

  EXPECT_EQ(Render({"--set", "crds.install=false"}).out.find("CustomResourceDefinition"), std::string::npos);
}

TEST(Chart, RefusesBadValuesAndSaysWhich) {
  TRAINYARD_NEEDS_HELM();
  const struct {
    std::string set;
    std::string message;
  } table[] = {
      {"imag.tag=1", "at '': additional properties 'imag' not allowed"},
      {"image.tagg=1", "at '/image': additional properties 'tagg' not allowed"},
      {"metrics.serviceMonitor.enable=true",
       "at '/metrics/serviceMonitor': additional properties 'enable' not allowed"},
      {"webhook.enabled=true", "additional properties 'webhook' not allowed"},
      {"gpuCatalogue.product[0].name=H100", "at '/gpuCatalogue': additional properties 'product' not allowed"},
      {"gpuCatalogue.products[0].mfu=0.4", "at '/gpuCatalogue/products/0': missing property 'name'"},
      {"gpuCatalogue.products[0].name=X,gpuCatalogue.products[0].mfu=40",
       "at '/gpuCatalogue/products/0/mfu': maximum: got 40, want 1"},
      {"topology=Azure", "at '/topology'"},
      {"topology[0].name=Rack,topology[0].label=example.com/rack",
       "at '/topology/0/name': 'Rack' does not match pattern"},
      {"topology[0].name=rack", "at '/topology/0': missing property 'label'"},
      {"fabricProfiles.profiles[0].name=RoCE", "at '/fabricProfiles/profiles/0/name': value must be one of 'Common', "},
      {"extraArgs[0]=--topology=GKE", "extraArgs: --topology is set by a value of its own"},
      {"replicas=two", "at '/replicas': got string, want integer"},
      {"replicas=-1", "at '/replicas': minimum: got -1, want 0"},
      {"image.repository=", "at '/image/repository': minLength: got 0, want 1"},
      {"image.pullPolicy=Sometimes", "at '/image/pullPolicy': value must be one of 'Always', 'IfNotPresent', 'Never'"},
      {"image.digest=latest", "at '/image/digest': 'latest' does not match pattern '^(sha256:[0-9a-f]{64})?$'"},
      {"trainer.image.tag=a b", "at '/trainer/image/tag': 'a b' does not match pattern"},
      {"trainer.cpuPerGPU=0.5", "at '/trainer/cpuPerGPU'"},
      {"trainer.memoryPerGPU=2", "at '/trainer/memoryPerGPU': got number, want string"},
      {"leaderElection.leaseDuration=15", "at '/leaderElection/leaseDuration': got number, want string"},
      {"leaderElection.retryPeriod=2sec", "at '/leaderElection/retryPeriod': '2sec' does not match pattern"},
      {"leaderElection.enabled=false", "replicas: 2 replicas need leaderElection.enabled=true"},
      {"watchNamespace=A_B", "at '/watchNamespace': 'A_B' does not match pattern"},
      {"leaderElection.leaseDuration=5s",
       "leaderElection: leaseDuration (5s) must be longer than renewDeadline (10s), and that longer than retryPeriod "
       "(2s)"},
      {"leaderElection.retryPeriod=1m", "renewDeadline (10s), and that longer than retryPeriod (1m)"},
      {"probes.port=8080", "metrics.port and probes.port are both 8080; give each its own"},
      {"podDisruptionBudget.minAvailable=2", "podDisruptionBudget.minAvailable: 2 of 2 replicas may never be missing"},
      {"extraArgs[0]=--workers=9", "extraArgs: --workers is set by a value of its own"},
      {"extraArgs[0]=--no-leader-elect", "extraArgs: --no-leader-elect is set by a value of its own"},
      {"podLabels.app\\.kubernetes\\.io/instance=x",
       "podLabels: app.kubernetes.io/instance selects the operator's pods"},
      {"commonLabels.app\\.kubernetes\\.io/name=x", "commonLabels: app.kubernetes.io/name selects the operator's pods"},
      {"clientConnection.qps=-1", "at '/clientConnection/qps': minimum: got -1, want 0"},
      {"workers=0", "at '/workers': minimum: got 0, want 1"},
      {"parallelCreates=many", "at '/parallelCreates': got string, want integer"},
      {"logging.level=verbose", "at '/logging/level': value must be one of 'trace', 'debug', 'info', 'warn', 'error'"},
      {"logging.format=xml", "at '/logging/format': value must be one of 'text', 'json'"},
      {"extraArgs[0]=verbose", "at '/extraArgs/0': 'verbose' does not match pattern '^--'"},
      {"imagePullSecrets[0]=secret", "at '/imagePullSecrets/0': got string, want object"},
      {"podLabels.team.name=x", "at '/podLabels/team': got object, want string"},
      {"resources.limit.memory=1Gi", "at '/resources': additional properties 'limit' not allowed"},
      {"livenessProbe.periodSeconds=0", "at '/livenessProbe/periodSeconds': minimum: got 0, want 1"},
      {"podDisruptionBudget.minAvailable=half",
       "at '/podDisruptionBudget/minAvailable': 'half' does not match pattern"},
      {"metrics.port=99999", "at '/metrics/port': maximum: got 99,999, want 65,535"},
      {"metrics.enabled=false,metrics.serviceMonitor.enabled=true",
       "metrics.serviceMonitor.enabled needs metrics.enabled"},
      {"metrics.serviceMonitor.enabled=true",
       "the cluster does not know monitoring.coreos.com/v1; install the Prometheus"},
      {"networkPolicy.apiServer.cidrs[0]=10.0.0.1", "at '/networkPolicy/apiServer/cidrs/0': '10.0.0.1' does not match"},
      {"terminationGracePeriodSeconds=0", "at '/terminationGracePeriodSeconds': minimum: got 0, want 1"},
  };
  for (const auto& row : table) {
    const Ran ran = Render({"--set", row.set});
    EXPECT_NE(ran.code, 0) << row.set << " is accepted";
    EXPECT_THAT(ran.err, HasSubstr(row.message)) << row.set;
  }
}

// ---- every value does something ------------------------------------------------------------------------------------

// Another value that the schema allows, told by what stands there.
json Changed(const std::string& path, const json& value) {
  static const std::map<std::string, json> special = {
      {"image.digest", "sha256:" + std::string(64, 'a')},
      {"trainer.image.digest", "sha256:" + std::string(64, 'a')},
      {"image.pullPolicy", "Always"},
      {"logging.level", "debug"},
      {"logging.format", "text"},
      {"trainer.cpuPerGPU", "2"},
      {"extraArgs", json::array({"--more"})},
      {"leaderElection.leaseDuration", "30s"},
      {"leaderElection.renewDeadline", "9s"},
      {"leaderElection.retryPeriod", "1s"},
      {"podDisruptionBudget.minAvailable", "50%"},
      {"gpuCatalogue", {{"products", {{{"name", "H100-SXM"}, {"pricePerHour", 2.5}}}}}},
      {"topology", "GKE"},
      {"fabricProfiles", {{"profiles", {{{"name", "Ethernet"}, {"variables", json::array()}}}}}},
      {"networkPolicy.apiServer.cidrs", json::array({"10.0.0.0/8"})},
      {"networkPolicy.apiServer.ports", json::array({8443})},
  };
  if (const auto found = special.find(path); found != special.end()) return found->second;
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number()) return value.get<int64_t>() + 1;
  if (value.is_object()) return {{"other", "other"}};
  if (value.is_array()) return value.empty() ? json::array({{{"name", "other"}}}) : json::array();
  const std::string text = value;
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) != 0 ? "1" + text : "other";
}

void ForEachLeaf(const json& values, const std::string& path,
                 const std::function<void(const std::string&, const json&)>& visit) {
  if (!values.is_object() || values.empty()) return visit(path, values);
  for (const auto& [key, value] : values.items()) ForEachLeaf(value, path.empty() ? key : path + "." + key, visit);
}

TEST(Chart, EveryValueChangesWhatIsRendered) {
  TRAINYARD_NEEDS_HELM();
  const Ran base = Render(kAllOn);
  ASSERT_EQ(base.code, 0) << base.err;
  int leaves = 0;
  ForEachLeaf(LoadOne(kChart + "/values.yaml"), "", [&](const std::string& path, const json& value) {
    ++leaves;
    const bool is_name = path.ends_with("erride");  // a name may not be what it is already
    const json other = is_name ? json("other-name") : Changed(path, value);
    const bool on_already = path == "networkPolicy.enabled" || path == "metrics.serviceMonitor.enabled";
    const Ran ran = Render(Plus(kAllOn, {"--set-json", path + "=" + (on_already ? "false" : other.dump())}));
    EXPECT_EQ(ran.err.find("specifications of the schema"), std::string::npos) << path << ": " << ran.err;
    EXPECT_TRUE(ran.out != base.out) << path << "=" << other << " changes nothing: no template reads it";
  });
  EXPECT_GT(leaves, 60);
}

void ExpectSameKeys(const json& schema, const json& values, const std::string& path) {
  if (!schema.contains("properties")) return;
  EXPECT_EQ(schema.value("additionalProperties", json(true)), json(false)) << path << ": a misspelled key would pass";
  for (const auto& [key, sub] : schema["properties"].items()) {
    if (path.empty() && key == "global") continue;
    const bool there = values.is_object() && values.contains(key);
    EXPECT_TRUE(there) << path << "/" << key << " is in values.schema.json but not in values.yaml";
    if (there) ExpectSameKeys(sub, values[key], path + "/" + key);
  }
}

TEST(Chart, SchemaAndValuesHaveTheSameKeys) {
  // The other way is what helm checks when it renders the defaults.
  ExpectSameKeys(json::parse(ReadFile(kChart + "/values.schema.json")), LoadOne(kChart + "/values.yaml"), "");
}

TEST(Chart, GpuCatalogueMayBeAnythingThatTheOperatorReads) {
  TRAINYARD_NEEDS_HELM();
  const json compiled_in = LoadOne(TRAINYARD_SOURCE_DIR "/operator/sizing/gpu_catalogue.yaml");
  const Ran ran = Render({"--set-json", "gpuCatalogue=" + compiled_in.dump()});
  ASSERT_EQ(ran.code, 0) << ran.err;
  auto documents = api::LoadYaml(ran.out, "the chart");
  ASSERT_TRUE(documents) << documents.error().message;
  for (const json& document : *documents) {
    if (document["kind"] != "ConfigMap") continue;
    auto mounted = api::LoadYaml(document["data"]["catalogue.yaml"].get<std::string>(), "catalogue.yaml");
    ASSERT_TRUE(mounted) << mounted.error().message;
    EXPECT_EQ(mounted->at(0), compiled_in);
    return;
  }
  FAIL() << "no ConfigMap is rendered";
}

TEST(Chart, EveryValueIsExplained) {
  std::istringstream lines(ReadFile(kChart + "/values.yaml"));
  bool explained = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) explained = false;
    if (line.starts_with("# ")) explained = true;
    if (std::regex_search(line, std::regex("^[a-z]"))) {
      EXPECT_TRUE(explained || line.find(" # ") != std::string::npos) << line << ": say what it does";
    }
  }
}

// ---- promises ------------------------------------------------------------------------------------------------------

json Find(const std::vector<json>& documents, const std::string& kind) {
  for (const json& document : documents) {
    if (document.value("kind", "") == kind) return document;
  }
  ADD_FAILURE() << "no " << kind << " is rendered";
  return json::object();
}

TEST(Chart, TheOperatorsPodMeetsTheRestrictedStandardOfPodSecurity) {
  TRAINYARD_NEEDS_HELM();
  const json spec = Find(Documents(WithoutCrd(Render({}).out)), "Deployment").at("/spec/template/spec"_json_pointer);
  EXPECT_EQ(spec.at("/securityContext/runAsNonRoot"_json_pointer), true);
  EXPECT_EQ(spec.at("/securityContext/runAsUser"_json_pointer), 65532);
  EXPECT_EQ(spec.at("/securityContext/seccompProfile/type"_json_pointer), "RuntimeDefault");
  for (const char* host : {"hostNetwork", "hostPID", "hostIPC", "volumes"}) EXPECT_FALSE(spec.contains(host)) << host;
  const json security = spec.at("/containers/0/securityContext"_json_pointer);
  EXPECT_EQ(security.at("allowPrivilegeEscalation"), false);
  EXPECT_EQ(security.at("readOnlyRootFilesystem"), true);
  EXPECT_EQ(security.at("capabilities"), json({{"drop", {"ALL"}}}));
}

TEST(Chart, TheNetworkPolicyOpensTheStatusPortOfTheContract) {
  TRAINYARD_NEEDS_HELM();
  const json policy = Find(Documents(WithoutCrd(Render({"--set", "networkPolicy.enabled=true"}).out)), "NetworkPolicy");
  const json egress = policy.at("/spec/egress"_json_pointer);
  EXPECT_EQ(egress.back().at("/ports/0/port"_json_pointer), contract::kDefaultStatusPort);
  EXPECT_EQ(egress.back().at("/to/0/podSelector/matchLabels"_json_pointer),
            json({{std::string(contract::kLabelRole), "trainer"}}));
}

TEST(Chart, OperatorsThatNobodyElectsNeverOverlap) {
  TRAINYARD_NEEDS_HELM();
  const auto type = [](const std::vector<std::string>& flags) {
    return Find(Documents(WithoutCrd(Render(flags).out)), "Deployment").at("spec").value("strategy", json());
  };
  EXPECT_EQ(type({}), json());
  EXPECT_EQ(type({"--set", "replicas=1,leaderElection.enabled=false"}), json({{"type", "Recreate"}}));
}

TEST(Chart, ANamespacedInstallGrantsNoWritesElsewhere) {
  TRAINYARD_NEEDS_HELM();
  const auto documents = Documents(WithoutCrd(Render({"--set", "watchNamespace=team-a"}).out));
  for (const json& document : documents) {
    if (document.value("kind", "") != "ClusterRole" ||
        document["metadata"]["labels"].contains("rbac.authorization.k8s.io/aggregate-to-view") ||
        document["metadata"]["labels"].contains("rbac.authorization.k8s.io/aggregate-to-edit")) {
      continue;
    }
    for (const json& rule : document["rules"]) EXPECT_EQ(rule["verbs"], json({"list", "watch"})) << rule;
  }
  EXPECT_EQ(Find(documents, "Role").at("/metadata/namespace"_json_pointer), "team-a");
}

TEST(Chart, TheReleaseIsOfTheVersionThatTheBuildHas) {
  const json chart = LoadOne(kChart + "/Chart.yaml");
  EXPECT_THAT(ReadFile(TRAINYARD_SOURCE_DIR "/CMakeLists.txt"),
              HasSubstr("project(trainyard VERSION " + chart["appVersion"].get<std::string>() + " "));
}

}  // namespace
}  // namespace trainyard::cluster_test
