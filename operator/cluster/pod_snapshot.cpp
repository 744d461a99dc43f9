#include <charconv>

#include "operator/cluster/cluster.h"
#include "operator/cluster/json_reader.h"
#include "operator/cluster/pod_requests.h"
#include "operator/cluster/snapshot.h"
#include "trainer/contract/contract.h"

namespace trainyard::cluster {
namespace {

using nlohmann::json;

api::PodPhase ParsePhase(const std::string& text) {
  if (text.empty() || text == "Pending") return api::PodPhase::kPending;
  if (text == "Running") return api::PodPhase::kRunning;
  if (text == "Succeeded") return api::PodPhase::kSucceeded;
  if (text == "Failed") return api::PodPhase::kFailed;
  return api::PodPhase::kUnknown;
}

// A label that holds a number; one that does not is a problem only on pods of ours.
int64_t NumberLabel(const json& pod, std::string_view label, int64_t absent, JsonReader& reader) {
  const std::string text = LabelOf(pod, label);
  if (text.empty()) return absent;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size() && number >= 0) return number;
  reader.Problem(label, "\"" + text + "\" is not a count");
  return absent;
}

// The node that required node affinity pins by `matchFields: metadata.name In [one]`; the first term that does.
std::string PinnedNode(const json& spec, JsonReader& reader) {
  const json& required = reader.Object(reader.Object(reader.Object(spec, "affinity"), "nodeAffinity"),
                                       "requiredDuringSchedulingIgnoredDuringExecution");
  for (const json& term : reader.Array(required, "nodeSelectorTerms")) {
    if (!term.is_object()) continue;
    for (const json& field : reader.Array(term, "matchFields")) {
      if (!field.is_object() || reader.String(field, "key") != "metadata.name") continue;
      const json& values = reader.Array(field, "values");
      if (reader.String(field, "operator") == "In" && values.size() == 1 && values[0].is_string()) {
        return values[0].get<std::string>();
      }
    }
  }
  return {};
}

void ReadContainer(const json& status, api::PodSnapshot& snapshot, JsonReader& reader) {
  for (const json& container : reader.Array(status, "containerStatuses")) {
    if (!container.is_object() || reader.String(container, "name") != contract::kContainerName) continue;
    const json& state = reader.Object(container, "state");
    if (const json& terminated = reader.Object(state, "terminated"); !terminated.empty()) {
      snapshot.exit_code = static_cast<int>(reader.Integer(terminated, "exitCode").value_or(-1));
      snapshot.termination_message = reader.String(terminated, "message");
      if (snapshot.reason.empty()) snapshot.reason = reader.String(terminated, "reason");
    } else if (const json& waiting = reader.Object(state, "waiting"); !waiting.empty()) {
      if (snapshot.reason.empty()) snapshot.reason = reader.String(waiting, "reason");
      if (snapshot.message.empty()) snapshot.message = reader.String(waiting, "message");
    }
  }
}

void ReadConditions(const json& status, api::PodSnapshot& snapshot, JsonReader& reader) {
  for (const json& condition : reader.Array(status, "conditions")) {
    if (!condition.is_object()) continue;
    const std::string type = reader.String(condition, "type");
    const bool is_true = reader.String(condition, "status") == "True";
    if (type == "Ready") snapshot.ready = is_true;
    // Why the scheduler does not bind it; a gate is our own doing and says nothing new.
    if (type == "PodScheduled" && !is_true && reader.String(condition, "reason") == "Unschedulable" &&
        snapshot.reason.empty()) {
      snapshot.reason = "Unschedulable";
      snapshot.message = reader.String(condition, "message");
    }
    if (type == "DisruptionTarget" && is_true && snapshot.reason.empty()) {
      snapshot.reason = reader.String(condition, "reason");
      snapshot.message = reader.String(condition, "message");
    }
  }
}

}  // namespace

Result<api::PodSnapshot> PodFromJson(const json& pod) {
  if (!pod.is_object()) return Fail(ErrorCode::kInvalidArgument, "pod: not a JSON object");
  JsonReader reader("pod " + ToString(KeyOf(pod)));
  const json& metadata = reader.Object(pod, "metadata");
  const json& spec = reader.Object(pod, "spec");
  const json& status = reader.Object(pod, "status");

  api::PodSnapshot snapshot;
  snapshot.ns = reader.String(metadata, "namespace");
  snapshot.name = reader.String(metadata, "name");
  if (snapshot.name.empty()) reader.Problem("metadata.name", "is missing");
  snapshot.uid = reader.String(metadata, "uid");
  snapshot.resource_version = reader.String(metadata, "resourceVersion");
  snapshot.owner_uid = ControllerUidOf(pod);
  snapshot.job_uid = LabelOf(pod, contract::kLabelJobUid);
  snapshot.attempt = NumberLabel(pod, contract::kLabelAttempt, 0, reader);
  snapshot.node_rank = NumberLabel(pod, contract::kLabelNodeRank, -1, reader);
  snapshot.deleting = !reader.String(metadata, "deletionTimestamp").empty();
  snapshot.creation_time = reader.Time(metadata, "creationTimestamp");

  for (const json& gate : reader.Array(spec, "schedulingGates")) {
    if (!gate.is_object()) continue;
    (reader.String(gate, "name") == contract::kGangGate ? snapshot.gated : snapshot.foreign_gate) = true;
  }
  snapshot.grace_seconds = reader.Integer(spec, "terminationGracePeriodSeconds").value_or(snapshot.grace_seconds);
  snapshot.pinned_node = PinnedNode(spec, reader);
  snapshot.node = reader.String(spec, "nodeName");
  snapshot.requests = PodRequests(pod, reader);
  if (const auto gpus = snapshot.requests.find(api::kGpuResource); gpus != snapshot.requests.end()) {
    snapshot.gpus = gpus->second;
  }

  snapshot.phase = ParsePhase(reader.String(status, "phase"));
  snapshot.reason = reader.String(status, "reason");
  snapshot.message = reader.String(status, "message");
  snapshot.ip = reader.String(status, "podIP");
  snapshot.start_time = reader.Time(status, "startTime");
  ReadConditions(status, snapshot, reader);
  ReadContainer(status, snapshot, reader);
  if (reader.error()) return Fail(*reader.error());
  return snapshot;
}

}  // namespace trainyard::cluster
