#include "operator/cluster/pod_requests.h"

#include <algorithm>
#include <limits>

namespace trainyard::cluster {
namespace {

using nlohmann::json;
using Amounts = std::map<std::string, int64_t>;

int64_t SaturatingAdd(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

void Add(Amounts& to, const Amounts& from) {
  for (const auto& [name, amount] : from) to[name] = SaturatingAdd(to[name], amount);
}

void Max(Amounts& to, const Amounts& from) {
  for (const auto& [name, amount] : from) to[name] = std::max(to[name], amount);
}

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
      Max(amounts, reader.Quantities(status, "allocatedResources"));
    }
  }
  return amounts;
}

}  // namespace

Amounts PodRequests(const json& pod, JsonReader& reader) {
  const json& spec = reader.Object(pod, "spec");
  const json& status = reader.Object(pod, "status");
  Amounts total;
  for (const json& container : reader.Array(spec, "containers")) {
    if (container.is_object())
      Add(total, ContainerRequests(container, reader.Array(status, "containerStatuses"), reader));
  }
  Amounts sidecars;
  Amounts init_peak;
  for (const json& container : reader.Array(spec, "initContainers")) {
    if (!container.is_object()) continue;
    Amounts needs = ContainerRequests(container, reader.Array(status, "initContainerStatuses"), reader);
    if (reader.String(container, "restartPolicy") == "Always") {
      Add(sidecars, needs);
      Max(init_peak, sidecars);
    } else {
      Add(needs, sidecars);
      Max(init_peak, needs);
    }
  }
  Add(total, sidecars);
  Max(total, init_peak);
  for (const auto& [name, amount] : RequestsOf(reader.Object(spec, "resources"), reader)) {
    if (name == "cpu" || name == "memory") total[name] = amount;
  }
  Add(total, reader.Quantities(spec, "overhead"));
  return total;
}

}  // namespace trainyard::cluster
