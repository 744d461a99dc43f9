#include "operator/cluster/cluster.h"
#include "operator/cluster/json_reader.h"
#include "operator/cluster/snapshot.h"

namespace trainyard::cluster {

using nlohmann::json;

Result<api::PriorityClass> PriorityClassFromJson(const json& object) {
  if (!object.is_object()) return Fail(ErrorCode::kInvalidArgument, "priority class: not a JSON object");
  JsonReader reader("priority class " + ToString(KeyOf(object)));
  api::PriorityClass read;
  read.name = reader.String(reader.Object(object, "metadata"), "name");
  if (read.name.empty()) reader.Problem("metadata.name", "is missing");
  read.value = reader.Integer(object, "value").value_or(0);
  read.preempts = reader.String(object, "preemptionPolicy") != "Never";
  read.global_default = reader.Bool(object, "globalDefault");
  if (reader.error()) return Fail(*reader.error());
  return read;
}

}  // namespace trainyard::cluster
