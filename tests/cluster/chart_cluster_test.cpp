// The chart on a real API server with simulated nodes: its rights against what the operator does with them, and
// upgrades under a running job. The operator is a process of ours that gets the chart's flags and the chart's service
// account; the pods that helm makes for it are simulated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "tests/cluster/chart.h"
#include "tests/cluster/chart_operator.h"

namespace trainyard::cluster_test {
namespace {

using nlohmann::json;
using testing::IsEmpty;

const std::string kNamespace = "trainyard-system";
const std::string kAccount = "system:serviceaccount:trainyard-system:trainyard";
constexpr std::chrono::seconds kPatience{60};

// Until `done`, looking every 100 ms; false when it takes too long.
bool Await(const std::function<bool()>& done) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!done()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return true;
}

// One for all tests of the program: no CRD, since the chart brings it, and two nodes with two GPUs each.
Result<ControlPlane*> Plane() {
  static const Result<std::unique_ptr<ControlPlane>> plane = []() -> Result<std::unique_ptr<ControlPlane>> {
    auto started = ControlPlane::Start({"--no-crd", "--audit"});
    if (!started) return started;
    const Ran kwok = RunProgram({"bash", TRAINYARD_SOURCE_DIR "/tests/cluster/kwok.sh", "up", "--dir",
                                 (*started)->dir(), "--nodes", "2", "--gpus", "2"});
    if (kwok.code != 0) {
      return Fail(kwok.code == 77 ? ErrorCode::kFailedPrecondition : ErrorCode::kInternal, "no nodes: " + kwok.err);
    }
    return started;
  }();
  if (!plane) return Fail(plane.error());
  return plane->get();
}

class ChartOnCluster : public testing::Test {
 protected:
  void SetUp() override {
    TRAINYARD_NEEDS_HELM();
    const Result<ControlPlane*> plane = Plane();
    if (!plane && plane.error().code == ErrorCode::kFailedPrecondition && !ClusterRequired()) {
      GTEST_SKIP() << plane.error().message;
    }
    ASSERT_TRUE(plane) << plane.error().message;
    plane_ = *plane;
  }

  // No job of one test may take the nodes of the next.
  void TearDown() override {
    if (plane_ == nullptr) return;
    Kubectl({"delete", "tj", "--all", "--all-namespaces", "--ignore-not-found", "--timeout=60s"});
    EXPECT_TRUE(Await([&] {
      return plane_->Kubectl({"get", "pods", "-A", "-l", "trainyard.dev/role=trainer", "-o", "name"}).out.empty();
    }));
  }

  std::string HelmRelease(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--namespace", kNamespace, "--kubeconfig", plane_->kubeconfig()});
    const Ran ran = Helm(arguments);
    EXPECT_EQ(ran.code, 0) << "helm " << arguments[0] << ": " << ran.err;
    return ran.out;
  }
  // The release with these values and no others.
  void Install(std::vector<std::string> flags = {}) {
    flags.insert(flags.begin(),
                 {"upgrade", "--install", "trainyard", kChart, "--create-namespace", "--wait", "--timeout", "60s"});
    HelmRelease(std::move(flags));
  }
  std::vector<json> Manifest() { return Documents(HelmRelease({"get", "manifest", "trainyard"})); }

  // The operator with the flags of the release as it is now.
  std::unique_ptr<ChartOperator> Operator() {
    std::vector<std::string> flags;
    for (const json& document : Manifest()) {
      if (document.value("kind", "") != "Deployment") continue;
      for (const json& flag : document.at("/spec/template/spec/containers/0/args"_json_pointer)) flags.push_back(flag);
    }
    const std::string kubeconfig = plane_->ServiceAccountKubeconfig(kNamespace, "trainyard");
    auto process = ChartOperator::Start(kubeconfig, flags);
    std::filesystem::remove(kubeconfig);  // it holds a token
    EXPECT_TRUE(process) << process.error().message;
    return process ? std::move(*process) : nullptr;
  }

  std::string Kubectl(std::vector<std::string> arguments, const std::string& input = "") {
    return plane_->MustKubectl(std::move(arguments), input);
  }
  json Get(const std::string& ns, const std::string& what) {
    const json object = json::parse(Kubectl({"-n", ns, "get", what, "-o", "json"}), nullptr, false);
    return object.is_discarded() ? json::object() : object;
  }
  // Phase and attempt, as "Running/1".
  std::string State(const std::string& ns, const std::string& job) {
    return plane_->Kubectl({"-n", ns, "get", "tj", job, "-o", "jsonpath={.status.phase}/{.status.attempt}"}).out;
  }
  void AwaitState(const std::string& ns, const std::string& job, const std::string& state) {
    ASSERT_TRUE(Await([&] { return State(ns, job) == state; }))
        << job << " is " << Get(ns, "tj/" + job).value("status", json()) << ", not " << state;
  }
  // Names of a job's pods, sorted.
  std::vector<std::string> Pods(const std::string& ns, const std::string& job) {
    std::istringstream names(Kubectl({"-n", ns, "get", "pods", "-l", "trainyard.dev/job-name=" + job, "-o",
                                      "jsonpath={range .items[*]}{.metadata.name}{\"\\n\"}{end}"}));
    std::vector<std::string> list;
    for (std::string name; std::getline(names, name);) list.push_back(name);
    std::sort(list.begin(), list.end());
    return list;
  }
  // As the kubelet would when the program ends.
  void Exit(const std::string& ns, const std::string& pod, int code) {
    const json status = {{"phase", code == 0 ? "Succeeded" : "Failed"},
                         {"containerStatuses",
                          {{{"name", "trainer"},
                            {"image", "x"},
                            {"imageID", "x"},
                            {"ready", false},
                            {"restartCount", 0},
                            {"state", {{"terminated", {{"exitCode", code}, {"reason", "Ended"}}}}}}}}};
    Kubectl({"-n", ns, "patch", "pod", pod, "--subresource=status", "--type=merge", "-p",
             json({{"status", status}}).dump()});
  }
  void Change(const std::string& ns, const std::string& job, const json& spec) {
    Kubectl({"-n", ns, "patch", "tj", job, "--type=merge", "-p", json({{"spec", spec}}).dump()});
  }
  void Apply(const std::string& ns, const std::string& name, const json& spec) {
    const json job = {{"apiVersion", "trainyard.dev/v1alpha1"},
                      {"kind", "TrainingJob"},
                      {"metadata", {{"name", name}, {"namespace", ns}}},
                      {"spec", spec}};
    Kubectl({"apply", "-f", "-"}, job.dump());
  }

  // Everything that the operator can be brought to do to the API server.
  void LiveAJobsLife(const std::string& ns, ChartOperator& process);
  // What the operator was allowed and did, compared; `since` is the length of the audit log before.
  void CompareRightsWithUse(const ChartOperator& process, size_t since);

  ControlPlane* plane_ = nullptr;
};

const json kOwnProgram = {{"model", {{"parameters", "125M"}}},
                          {"image", "me/train:1"},
                          {"command", {"train"}},
                          {"parallelism", {{"strategy", "DDP"}}},
                          {"training", {{"globalBatchSize", 8}}},
                          {"gpus", {{"count", 4}, {"products", {"H100-SXM"}}}}};

void ChartOnCluster::LiveAJobsLife(const std::string& ns, ChartOperator& process) {
  // Somebody's Service stands where the job's has to go: read, left alone, and made when it is gone.
  Kubectl({"-n", ns, "create", "service", "clusterip", "tj-life", "--tcp=80"});
  Apply(ns, "life", kOwnProgram);
  const auto told = [&](const std::string& words) { return process.Log().find(words) != std::string::npos; };
  ASSERT_TRUE(Await([&] { return told("the job needs the name of Service " + ns + "/tj-life"); }));
  Kubectl({"-n", ns, "delete", "service", "tj-life"});
  // Each try that was refused was an attempt.
  ASSERT_TRUE(Await([&] { return State(ns, "life").starts_with("Running/"); }));
  int attempt = std::stoi(State(ns, "life").substr(std::strlen("Running/")));
  const auto state = [&](const std::string& phase) { return phase + "/" + std::to_string(attempt); };

  Kubectl({"-n", ns, "scale", "tj/life", "--replicas=2"});
  ASSERT_NO_FATAL_FAILURE(AwaitState(ns, "life", "Running/" + std::to_string(++attempt)));
  Kubectl({"-n", ns, "scale", "tj/life", "--replicas=4"});
  ASSERT_NO_FATAL_FAILURE(AwaitState(ns, "life", "Running/" + std::to_string(++attempt)));

  // One of two pods fails: the other is deleted, the failed one kept for its log, then swept.
  Exit(ns, Pods(ns, "life").at(0), 1);
  ASSERT_NO_FATAL_FAILURE(AwaitState(ns, "life", "Running/" + std::to_string(++attempt)));

  // The same event again and again becomes a patch of the first one.
  for (int i = 0; i < 2; ++i) {
    for (const auto& [product, planned] : {std::pair("L4", "False"), std::pair("H100-SXM", "True")}) {
      Change(ns, "life", {{"gpus", {{"products", {product}}}}});
      ASSERT_TRUE(Await([&, planned = planned] {
        return plane_
                   ->Kubectl({"-n", ns, "get", "tj", "life", "-o",
                              "jsonpath={.status.conditions[?(@.type=='Planned')].status}"})
                   .out == planned;
      }));
    }
  }

  // Somebody's pod stands where one of the next attempt has to go.
  std::string squatter = Pods(ns, "life").back();
  squatter = std::regex_replace(squatter, std::regex("-[0-9]+-[0-9]+$"), "-" + std::to_string(attempt + 1) + "-0");
  Change(ns, "life", {{"suspend", true}});
  ASSERT_NO_FATAL_FAILURE(AwaitState(ns, "life", state("Suspended")));
  Kubectl({"-n", ns, "run", squatter, "--image=me/other:1"});
  Change(ns, "life", {{"suspend", false}});
  ASSERT_TRUE(Await([&] { return told("the job needs the name of Pod " + ns + "/" + squatter); }));
  Kubectl({"-n", ns, "delete", "pod", squatter, "--force", "--grace-period=0"});
  ASSERT_NO_FATAL_FAILURE(AwaitState(ns, "life", "Running/" + std::to_string(attempt += 2)));

  for (const std::string& pod : Pods(ns, "life")) Exit(ns, pod, 0);
  ASSERT_NO_FATAL_FAILURE(AwaitState(ns, "life", state("Succeeded")));
  ASSERT_TRUE(Await([&] { return plane_->Kubectl({"-n", ns, "get", "service", "tj-life"}).code != 0; }));
}

// One line per right or request: "delete pods", "update trainingjobs/status", with the place where that matters.
std::string Line(const std::string& verb, const std::string& resource, const std::string& ns) {
  return verb + " " + resource + (ns.empty() ? "" : " in " + ns);
}

void ChartOnCluster::CompareRightsWithUse(const ChartOperator& process, size_t since) {
  // Granted, but never called by the operator itself.
  const std::set<std::string> exempt = {
      "update trainingjobs/finalizers",  // asked for by admission, for owner references with blockOwnerDeletion
      "patch trainingjobs",              // for jobs whose checkpoints go with them, of which there is none here
  };
  std::set<std::string> denied, unused, called;
  std::vector<json> requests;
  {
    std::ifstream audit(plane_->dir() + "/logs/audit.log");
    audit.seekg(static_cast<std::streamoff>(since));
    for (std::string line; std::getline(audit, line);) {
      const json event = json::parse(line, nullptr, false);
      if (event.is_discarded() || event["user"].value("username", "") != kAccount) continue;
      if (!event.contains("objectRef")) continue;  // /version
      requests.push_back(event);
    }
  }
  ASSERT_FALSE(requests.empty());
  const auto resource_of = [](const json& ref) {
    const std::string sub = ref.value("subresource", "");
    return ref.value("resource", "") + (sub.empty() ? "" : "/" + sub);
  };
  for (const json& event : requests) {
    const json& ref = event["objectRef"];
    const std::string line = Line(event["verb"], resource_of(ref), "");
    called.insert(line);
    if (event.value("/responseStatus/code"_json_pointer, 0) == 403)
      denied.insert(line + " in " + ref.value("namespace", ""));
  }
  EXPECT_THAT(denied, IsEmpty()) << "the chart's rules are too narrow";

  int rights = 0;
  for (const json& document : Manifest()) {
    const std::string kind = document.value("kind", "");
    const bool for_people = document["metadata"]["name"].get<std::string>().ends_with("-edit") ||
                            document["metadata"]["name"].get<std::string>().ends_with("-view");
    if ((kind != "ClusterRole" && kind != "Role") || for_people) continue;
    const std::string ns = kind == "Role" ? document["metadata"]["namespace"].get<std::string>() : "";
    for (const json& rule : document["rules"]) {
      for (const json& resource : rule["resources"]) {
        for (const json& verb : rule["verbs"]) {
          ++rights;
          const bool used = std::any_of(requests.begin(), requests.end(), [&](const json& event) {
            const json& ref = event["objectRef"];
            return event["verb"] == verb && resource_of(ref) == resource &&
                   (ns.empty() || ref.value("namespace", "") == ns);
          });
          if (!used && !exempt.contains(Line(verb, resource, ""))) unused.insert(Line(verb, resource, ns));
        }
      }
    }
  }
  EXPECT_THAT(unused, IsEmpty()) << "the chart grants what nobody needs";
  EXPECT_GE(rights, 22);

  // The operator's own figures say the same as the API server.
  std::set<std::string> counted;
  const std::string metrics = process.Metrics();
  const std::regex label(R"re((\w+)="([^"]*)")re");
  std::istringstream lines(metrics);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("rest_client_requests_total{")) continue;
    std::map<std::string, std::string> labels;
    for (std::sregex_iterator it(line.begin(), line.end(), label), end; it != end; ++it) labels[(*it)[1]] = (*it)[2];
    EXPECT_NE(labels["code"], "403") << line;
    if (labels["resource"].empty()) continue;
    const std::string sub = labels["subresource"];
    counted.insert(Line(labels["verb"], labels["resource"] + (sub.empty() ? "" : "/" + sub), ""));
  }
  EXPECT_EQ(counted, called) << "rest_client_requests_total and the audit log disagree";
}

TEST(Chart, HasTheDefaultsOfTheProgram) {
  TRAINYARD_NEEDS_HELM();
  const std::string help = RunProgram({TRAINYARD_BIN_DIR "/trainyard-operator", "--help"}).out;
  const std::string rendered = Render({}).out;
  for (const char* flag :
       {"kube-api-qps", "kube-api-burst", "workers", "parallel-creates", "cpu-per-gpu", "memory-per-gpu", "topology",
        "log-level", "metrics-bind-address", "health-probe-bind-address"}) {
    std::smatch own, chart;
    ASSERT_TRUE(std::regex_search(help, own, std::regex("--" + std::string(flag) + " [^=]*=(\\S+) \\(Env"))) << flag;
    ASSERT_TRUE(std::regex_search(rendered, chart, std::regex("--" + std::string(flag) + "=(\\S+)"))) << flag;
    EXPECT_EQ(own.str(1), chart.str(1)) << "--" << flag;
  }
}

TEST(Operator, RefusesFlagsThatMakeNoSenseInOneLine) {
  const struct {
    const char* flag;
    const char* message;
  } table[] = {
      {"--kube-api-qps=-1", "--kube-api-qps: Value -1 not in range 0"},
      {"--kube-api-burst=0", "--kube-api-burst: Value 0 not in range"},
      {"--workers=65", "--workers: Value 65 not in range"},
      {"--namespace=Bad_NS", "--namespace: 'Bad_NS' is not a name"},
      {"--leader-election-id=Bad_Id!", "--leader-election-id: 'Bad_Id!' is not a name"},
      {"--lease-duration=5s", "the lease duration (5.0s) must be longer than the renew deadline (10.0s)"},
      {"--lease-duration=5", "--lease-duration"},
      {"--metrics-bind-address=nowhere", "--metrics-bind-address"},
      {"--log-level=loud", "loud"},
  };
  for (const auto& row : table) {
    const Ran ran = RunProgram({TRAINYARD_BIN_DIR "/trainyard-operator", row.flag});
    EXPECT_EQ(ran.code, 2) << row.flag;
    EXPECT_THAT(ran.err, testing::HasSubstr(row.message)) << row.flag;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    EXPECT_LT(ran.err.size(), 200u) << ran.err;
  }
}

TEST_F(ChartOnCluster, ApiServerAndOperatorAcceptWhatEveryValuesFileRenders) {
  Install();
  Kubectl({"create", "namespace", "team-a"});  // of namespaced.values.yaml
  const std::string golden = TRAINYARD_SOURCE_DIR "/tests/golden/chart";
  for (const auto& entry : std::filesystem::directory_iterator(golden)) {
    const std::string path = entry.path().string();
    if (!path.ends_with(".values.yaml")) continue;
    // Under another name, so that nothing is a change of what the release above has made.
    const Ran rendered = Helm({"template", "other", kChart, "--namespace", kNamespace, "--values", path,
                               "--api-versions", "monitoring.coreos.com/v1"});
    ASSERT_EQ(rendered.code, 0) << rendered.err;
    json list = {{"apiVersion", "v1"}, {"kind", "List"}, {"items", json::array()}};
    const std::filesystem::path mounted = plane_->dir();
    for (const json& document : Documents(rendered.out)) {
      if (document["kind"] == "ServiceMonitor") continue;  // a kind of the Prometheus operator's
      list["items"].push_back(document);
      // In place of where the pod would have them mounted.
      if (document["kind"] == "ConfigMap") {
        for (const auto& [file, text] : document.at("data").items()) {
          std::ofstream(mounted / file) << text.get<std::string>();
        }
      }
      if (document["kind"] != "Deployment") continue;
      // No kubeconfig there: 1, "cannot start". Flags that it does not know would be 2.
      std::vector<std::string> argv = {TRAINYARD_BIN_DIR "/trainyard-operator", "--kubeconfig=/nowhere"};
      for (const json& flag : document.at("/spec/template/spec/containers/0/args"_json_pointer)) {
        std::string text = flag.get<std::string>();
        if (const size_t at = text.find("=/etc/trainyard/"); at != std::string::npos) {
          text = text.substr(0, at + 1) + (mounted / text.substr(text.rfind('/') + 1)).string();
        }
        argv.push_back(std::move(text));
      }
      const Ran ran = RunProgram(argv);
      EXPECT_EQ(ran.code, 1) << path << ": " << ran.out << ran.err;
    }
    const Ran applied = plane_->Kubectl({"apply", "--server-side", "--force-conflicts", "--dry-run=server",
                                         "--validate=strict", "--field-manager=test", "-f", "-"},
                                        list.dump());
    EXPECT_EQ(applied.code, 0) << path << ": " << applied.err;
  }
}

TEST_F(ChartOnCluster, RightsAreWhatALifeNeedsAndNoMore) {
  Install();
  const std::string ns = plane_->FreshNamespace("life");
  const auto process = Operator();
  ASSERT_TRUE(process);
  ASSERT_NO_FATAL_FAILURE(LiveAJobsLife(ns, *process));
  CompareRightsWithUse(*process, 0);
}

TEST_F(ChartOnCluster, RightsInOneNamespaceAreWhatALifeNeedsAndNoMore) {
  const std::string ns = plane_->FreshNamespace("life");
  const std::string other = plane_->FreshNamespace("other");
  Install({"--set", "watchNamespace=" + ns});
  Kubectl({"-n", kNamespace, "delete", "lease", "trainyard", "--ignore-not-found"});  // it is to be made again
  const auto since = std::filesystem::file_size(plane_->dir() + "/logs/audit.log");
  const auto process = Operator();
  ASSERT_TRUE(process);
  Apply(other, "ignored", kOwnProgram);
  ASSERT_NO_FATAL_FAILURE(LiveAJobsLife(ns, *process));
  CompareRightsWithUse(*process, since);
  EXPECT_FALSE(Get(other, "tj/ignored").contains("status")) << "a job of another namespace is not ours";
}

TEST_F(ChartOnCluster, PeopleWithEditAndViewMayUseJobs) {
  Install();
  const std::string ns = plane_->FreshNamespace("people");
  for (const char* role : {"edit", "view"}) {
    Kubectl(
        {"-n", ns, "create", "rolebinding", role, std::string("--clusterrole=") + role, std::string("--user=") + role});
  }
  const struct {
    std::string user, verb, what;
    bool allowed;
  } table[] = {
      {"edit", "create", "trainingjobs", true},     {"edit", "delete", "trainingjobs", true},
      {"edit", "patch", "trainingjobs", true},      {"edit", "patch", "trainingjobs/scale", true},
      {"edit", "get", "trainingjobs/status", true}, {"edit", "update", "trainingjobs/status", false},
      {"view", "get", "trainingjobs", true},        {"view", "watch", "trainingjobs", true},
      {"view", "create", "trainingjobs", false},    {"view", "patch", "trainingjobs/scale", false},
  };
  const auto can = [&](const std::string& user, const std::string& verb, const std::string& what) {
    const size_t slash = what.find('/');
    std::vector<std::string> ask = {"-n",   ns,  "auth", "can-i", verb, what.substr(0, slash) + ".trainyard.dev",
                                    "--as", user};
    if (slash != std::string::npos) ask.push_back("--subresource=" + what.substr(slash + 1));
    return plane_->Kubectl(ask).out.starts_with("yes");
  };
  ASSERT_TRUE(Await([&] { return can("edit", "create", "trainingjobs"); })) << "the roles are not aggregated";
  ASSERT_TRUE(Await([&] { return can("view", "get", "trainingjobs"); }));
  for (const auto& row : table)
    EXPECT_EQ(can(row.user, row.verb, row.what), row.allowed) << row.user << " " << row.verb << " " << row.what;
}

const json kBundledTrainer = {
    {"model", {{"architecture", {{"layers", 6}, {"hiddenSize", 256}, {"attentionHeads", 8}}}}},
    {"data", {{"train", {{{"volume", "corpus"}, {"path", "train.txt"}}}}}},
    {"training", {{"steps", 100}, {"globalBatchSize", 8}}},
    {"checkpoint", {{"volume", "checkpoints"}}},
    {"gpus", {{"count", 2}, {"perNode", 1}}},
    {"volumes",
     {{{"name", "corpus"}, {"hostPath", {{"path", "/data"}}}},
      {{"name", "checkpoints"}, {"hostPath", {{"path", "/ck"}}}}}}};

TEST_F(ChartOnCluster, UpgradeAndRollbackLeaveARunningJobAlone) {
  Install({"--set", "trainer.image.tag=old"});
  const std::string ns = plane_->FreshNamespace("upgrade");
  const auto images = [&] {
    return Kubectl({"-n", ns, "get", "pods", "-l", "trainyard.dev/job-name=job", "-o",
                    "jsonpath={.items[*].spec.containers[0].image}"});
  };
  const auto uids = [&] { return Kubectl({"-n", ns, "get", "pods", "-o", "jsonpath={.items[*].metadata.uid}"}); };
  auto process = Operator();
  ASSERT_TRUE(process);
  Apply(ns, "job", kBundledTrainer);
  ASSERT_NO_FATAL_FAILURE(AwaitState(ns, "job", "Running/1"));
  const std::string before = uids();
  const std::string old_images = "trainyard/trainer:old trainyard/trainer:old";
  EXPECT_EQ(images(), old_images);

  // Each release replaces the operator, as the Deployment would.
  const auto replace = [&](const std::string& marker) {
    EXPECT_EQ(process->Stop(), 0) << process->Log();
    process = Operator();
    ASSERT_TRUE(process);
    // A job of its own shows that the new operator is at work.
    Apply(ns, marker, kOwnProgram);
    ASSERT_TRUE(Await([&] { return State(ns, marker).starts_with("Queued/"); })) << State(ns, marker);
    EXPECT_EQ(State(ns, "job"), "Running/1");
    EXPECT_EQ(uids(), before) << "the same pods as before";
  };
  Install({"--set", "trainer.image.tag=new,trainer.cpuPerGPU=2"});
  ASSERT_NO_FATAL_FAILURE(replace("upgraded"));
  HelmRelease({"rollback", "trainyard", "--wait", "--timeout", "60s"});
  ASSERT_NO_FATAL_FAILURE(replace("rolled-back"));
  Install({"--set", "trainer.image.tag=new,trainer.cpuPerGPU=2"});
  ASSERT_NO_FATAL_FAILURE(replace("upgraded-again"));
  Kubectl({"-n", ns, "delete", "tj", "upgraded", "rolled-back", "upgraded-again"});

  // A pod that is lost comes back as it was.
  Exit(ns, Pods(ns, "job").at(0), 137);
  ASSERT_NO_FATAL_FAILURE(AwaitState(ns, "job", "Running/2"));
  ASSERT_TRUE(Await([&] { return Pods(ns, "job").size() >= 2; }));
  EXPECT_EQ(images().find("new"), std::string::npos) << images();
  EXPECT_EQ(Kubectl({"-n", ns, "get", "pods", "-l", "trainyard.dev/attempt=2", "-o",
                     "jsonpath={.items[*].spec.containers[0].resources.requests.cpu}"}),
            "1 1");
  // A changed spec takes what the operator has now.
  Change(ns, "job", {{"suspend", true}});
  ASSERT_NO_FATAL_FAILURE(AwaitState(ns, "job", "Suspended/2"));
  Change(ns, "job", {{"suspend", false}});
  ASSERT_NO_FATAL_FAILURE(AwaitState(ns, "job", "Running/3"));
  EXPECT_EQ(images(), "trainyard/trainer:new trainyard/trainer:new");
}

TEST_F(ChartOnCluster, UninstallKeepsTheCrdAndAllJobsAndTheNextInstallTakesThemOver) {
  Install();
  const std::string ns = plane_->FreshNamespace("kept");
  Apply(ns, "job", kOwnProgram);
  const json before = Get(ns, "tj/job");
  HelmRelease({"uninstall", "trainyard", "--wait", "--timeout", "60s"});
  const json after = Get(ns, "tj/job");
  EXPECT_EQ(after["metadata"]["uid"], before["metadata"]["uid"]);
  EXPECT_EQ(after["spec"], before["spec"]);
  const std::string left =
      Kubectl({"get", "clusterroles,clusterrolebindings", "-l", "app.kubernetes.io/name=trainyard", "-o", "name"});
  EXPECT_EQ(left, "") << "nothing but the CRD stays";
  Install();
  EXPECT_EQ(Get(ns, "tj/job")["metadata"]["uid"], before["metadata"]["uid"]);
  const json role = json::parse(Kubectl({"get", "crd", "trainingjobs.trainyard.dev", "-o", "json"}));
  EXPECT_EQ(role["metadata"]["annotations"].value("helm.sh/resource-policy", ""), "keep");
}

}  // namespace
}  // namespace trainyard::cluster_test
