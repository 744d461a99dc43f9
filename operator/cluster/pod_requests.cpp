#include "operator/cluster/pod_requests.h"

namespace trainyard::cluster {
namespace {

using api::Amounts;
using nlohmann::json;

// Requests of `resources`; a limit stands in where no request is given, as the API server's defaulting does.
Amounts RequestsOf(const json& resources, JsonReader& reader) {
  Amounts amounts = reader.Quantities(resources, "requests");
  for (const auto& [name, amount] : reader.Quantities(resources, "limits")) amounts.emplace(name, amount);
  return amounts;
}

Amounts ContainerRequests(const json& container, const json& statuses, JsonReader& reader) {
  Amounts amounts = RequestsOf(reader.Object(container, "resources"), reader);
  const std::string name = reader.String(container, "name");
  for (const json& status : statuses) {
    if (status.is_object() && reader.String(status, "name") == name) {
      api::MaxAmounts(amounts, reader.Quantities(status, "allocatedResources"));
    }
  }
  return amounts;
}

}  // namespace

Amounts PodRequests(const json& pod, JsonReader& reader) {
  const json& spec = reader.Object(pod, "spec");
  const json& status = reader.Object(pod, "status");
  api::PodSum sum;
  for (const json& container : reader.Array(spec, "containers")) {
    if (!container.is_object()) continue;
    sum.Container(ContainerRequests(container, reader.Array(status, "containerStatuses"), reader));
  }
  for (const json& container : reader.Array(spec, "initContainers")) {
    if (!container.is_object()) continue;
    sum.InitContainer(ContainerRequests(container, reader.Array(status, "initContainerStatuses"), reader),
                      reader.String(container, "restartPolicy") == "Always");
  }
  sum.WholePod(RequestsOf(reader.Object(spec, "resources"), reader));
  sum.Overhead(reader.Quantities(spec, "overhead"));
  return sum.Total();
}

}  // namespace trainyard::cluster
