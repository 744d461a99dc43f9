#include "operator/cluster/cluster.h"
#include "operator/cluster/json_reader.h"
#include "operator/cluster/snapshot.h"

namespace trainyard::cluster {

using nlohmann::json;

Result<api::NodeSnapshot> NodeFromJson(const json& node) {
  if (!node.is_object()) return Fail(ErrorCode::kInvalidArgument, "node: not a JSON object");
  JsonReader reader("node " + ToString(KeyOf(node)));
  const json& metadata = reader.Object(node, "metadata");
  const json& spec = reader.Object(node, "spec");
  const json& status = reader.Object(node, "status");

  api::NodeSnapshot snapshot;
  snapshot.name = reader.String(metadata, "name");
  if (snapshot.name.empty()) reader.Problem("metadata.name", "is missing");
  snapshot.labels = reader.StringMap(metadata, "labels");
  snapshot.annotations = reader.StringMap(metadata, "annotations");
  snapshot.deleting = !reader.String(metadata, "deletionTimestamp").empty();
  snapshot.unschedulable = reader.Bool(spec, "unschedulable");
  for (const json& taint : reader.Array(spec, "taints")) {
    if (!taint.is_object()) {
      reader.Problem("spec.taints", "must hold objects");
      continue;
    }
    snapshot.taints.push_back(
        {reader.String(taint, "key"), reader.String(taint, "value"), reader.String(taint, "effect")});
  }
  for (const json& condition : reader.Array(status, "conditions")) {
    if (!condition.is_object()) {
      reader.Problem("status.conditions", "must hold objects");
      continue;
    }
    const std::string type = reader.String(condition, "type");
    snapshot.conditions[type] = reader.String(condition, "status");
    if (type == "Ready") {
      snapshot.ready = snapshot.conditions[type] == "True";
      snapshot.ready_transition_time = reader.Time(condition, "lastTransitionTime");
    }
  }
  snapshot.allocatable = reader.Quantities(status, "allocatable");
  if (reader.error()) return Fail(*reader.error());
  return snapshot;
}

}  // namespace trainyard::cluster
