// An audit log made by hand, line by line as the API server writes them: what the tests of its reader read.
// Thread-safety: none.
#pragma once

#include <gtest/gtest.h>

#include <ctime>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/cluster/gangs/gang_history.h"

namespace trainyard::gangs {

using nlohmann::json;

inline constexpr const char* kOperator = "trainyard-operator/0.1.0";

// Writes lines as the API server does. Time passes by a tenth of a second with each write.
class Log {
 public:
  void Pass(Seconds seconds) { now_ += seconds; }
  void Node(const std::string& name, int gpus, const std::string& verb = "patch", json spec = json::object()) {
    json node = {{"kind", "Node"},
                 {"metadata", Meta("", name, name)},
                 {"spec", std::move(spec)},
                 {"status",
                  {{"allocatable", {{"nvidia.com/gpu", std::to_string(gpus)}}},
                   {"conditions", {{{"type", "Ready"}, {"status", "True"}}}}}}};
    Write("kubelet", verb, "nodes", verb == "patch" ? "status" : "", "", name, std::move(node));
  }
  // Answered with a Status that names it, as the API server does.
  void RemoveNode(const std::string& name) {
    Write("kubectl", "delete", "nodes", "", "", name, json::object());
    lines.back()["responseObject"] = {{"kind", "Status"},
                                      {"metadata", json::object()},
                                      {"status", "Success"},
                                      {"details", {{"name", name}, {"kind", "nodes"}, {"uid", name}}}};
  }
  // A pod of the gang JOB, attempt 1 of two nodes, pinned; an empty node: no pin.
  json Pod(const std::string& job, int rank, const std::string& node, int gpus = 8, int attempt = 1) {
    const std::string name = fmt::format("{}-abcd-{}-{}", job, attempt, rank);
    json pod = {{"kind", "Pod"},
                {"metadata", Meta("default", name, name)},
                {"spec",
                 {{"schedulingGates", {{{"name", "trainyard.dev/gang"}}}},
                  {"containers",
                   {{{"name", "trainer"},
                     {"env", {{{"name", "NNODES"}, {"value", "2"}}}},
                     {"resources", {{"limits", {{"nvidia.com/gpu", std::to_string(gpus)}}}}}}}}}},
                {"status", {{"phase", "Pending"}}}};
    pod["metadata"]["labels"] = {{"trainyard.dev/job-uid", job}, {"trainyard.dev/attempt", std::to_string(attempt)}};
    if (!node.empty()) {
      pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] = {
          {{"matchFields", {{{"key", "metadata.name"}, {"operator", "In"}, {"values", {node}}}}}}};
    }
    return pod;
  }
  json Create(json pod, const std::string& agent = kOperator) { return WritePod(agent, "create", "", std::move(pod)); }
  json Ungate(json pod, const std::string& agent = kOperator) {
    pod["spec"].erase("schedulingGates");
    return WritePod(agent, "patch", "", std::move(pod));
  }
  json Phase(json pod, const std::string& phase, const std::string& node) {
    pod["spec"]["nodeName"] = node;
    pod["status"]["phase"] = phase;
    return WritePod("kubelet", "patch", "status", std::move(pod));
  }
  void Delete(json pod, const std::string& agent, int grace = 0) {
    pod["metadata"]["deletionTimestamp"] = "now", pod["metadata"]["deletionGracePeriodSeconds"] = grace;
    WritePod(agent, "delete", "", std::move(pod));
  }
  void Status(const std::string& job, const std::vector<std::string>& nodes, const std::string& stop = "") {
    json status = {{"attempt", 1}, {"reason", "because"}, {"placement", {{"nodes", json::array()}}}};
    for (const std::string& node : nodes) status["placement"]["nodes"].push_back({{"node", node}});
    if (!stop.empty()) status["stop"] = {{"reason", stop}, {"attempt", 1}};
    Write(kOperator, "update", "trainingjobs", "status", "default", job,
          {{"kind", "TrainingJob"}, {"metadata", Meta("default", job, job)}, {"status", status}});
  }
  json Bind(const json& pod, const std::string& node) {
    Write("kube-scheduler", "create", "pods", "binding", "default", pod["metadata"]["name"],
          {{"target", {{"name", node}}}}, 201);
    // It is answered with a Status: what is known of it is what was asked for.
    json& binding = lines.back();
    binding["requestObject"] = binding["responseObject"];
    binding["responseObject"] = {{"kind", "Status"}, {"metadata", json::object()}};
    json bound = pod;
    bound["spec"]["nodeName"] = node;
    return bound;
  }
  // The last line tells no version.
  void ForgetVersion() { lines.back()["responseObject"]["metadata"].erase("resourceVersion"); }
  // The last line came back with this code (0: none) and without the object.
  void Unanswered(int code) {
    json& event = lines.back();
    event["requestObject"] = event["responseObject"];
    event.erase("responseObject");
    event["responseStatus"] = {{"code", code}};
  }
  // Any event; `object` gets the next version.
  json Write(const std::string& agent, const std::string& verb, const std::string& resource, const std::string& sub,
             const std::string& ns, const std::string& name, json object, int code = 200) {
    now_ += 0.1;
    object["metadata"]["resourceVersion"] = std::to_string(++version_);
    json event = {{"kind", "Event"},
                  {"stage", "ResponseComplete"},
                  {"verb", verb},
                  {"requestURI", "/api/v1/" + resource},
                  {"userAgent", agent},
                  {"objectRef", {{"resource", resource}, {"subresource", sub}, {"namespace", ns}, {"name", name}}},
                  {"responseStatus", {{"code", code}}},
                  {"requestReceivedTimestamp", Stamp(now_ - 0.05)},
                  {"stageTimestamp", Stamp(now_)}};
    event[code / 100 == 2 ? "responseObject" : "requestObject"] = object;
    lines.push_back(event);
    return object;
  }
  std::vector<AuditWrite> Writes() const {
    std::stringstream text;
    for (const json& line : lines) text << line.dump() << "\n";
    const auto writes = ReadAuditLog(text);
    EXPECT_TRUE(writes) << writes.error().message;
    return writes ? *writes : std::vector<AuditWrite>();
  }
  GangHistory Replayed(const Rules& rules = {}) const { return Replay(Writes(), rules); }
  // "rule: what" of each breach.
  std::vector<std::string> Breaches(const Rules& rules = {}) const {
    std::vector<std::string> told;
    for (const Breach& breach : Replayed(rules).breaches) told.push_back(breach.rule + ": " + breach.what);
    return told;
  }

  std::vector<json> lines;

 private:
  json WritePod(const std::string& agent, const std::string& verb, const std::string& sub, json pod) {
    const std::string name = pod["metadata"]["name"];
    return Write(agent, verb, "pods", sub, "default", name, std::move(pod));
  }
  json Meta(const std::string& ns, const std::string& name, const std::string& uid) {
    return {{"namespace", ns}, {"name", name}, {"uid", uid}};
  }
  static std::string Stamp(Seconds when) {
    const auto whole = static_cast<std::time_t>(when);
    char text[32];
    std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", std::gmtime(&whole));
    return fmt::format("{}.{:06}Z", text, static_cast<int>((when - static_cast<double>(whole)) * 1e6));
  }

  Seconds now_ = 1'800'000'000;
  int64_t version_ = 100;
};

// A gang of two on nodes a and b that starts, runs and ends.
inline void RunWell(Log& log, const std::string& job) {
  log.Status(job, {"a", "b"});
  json first = log.Create(log.Pod(job, 0, "a")), second = log.Create(log.Pod(job, 1, "b"));
  first = log.Ungate(first), second = log.Ungate(second);
  first = log.Phase(first, "Running", "a"), second = log.Phase(second, "Running", "b");
  first = log.Phase(first, "Succeeded", "a"), second = log.Phase(second, "Succeeded", "b");
}

inline Log TwoNodes() {
  Log log;
  log.Node("a", 8, "create"), log.Node("b", 8, "create");
  return log;
}

}  // namespace trainyard::gangs
