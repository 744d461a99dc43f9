#include "operator/placement/fabric.h"

#include <algorithm>
#include <utility>

#include "operator/placement/yard.h"

namespace trainyard::placement {

const std::shared_ptr<const FabricProfiles>& FabricProfiles::Default() {
  static const auto* kDefault = new std::shared_ptr<const FabricProfiles>([] {
    FabricProfiles profiles;
    profiles.profiles_ = {
        {.name = "NVLink", .variables = {{"NCCL_DEBUG", "WARN", "says what is wrong, and nothing while all is well"}}}};
    return std::make_shared<const FabricProfiles>(std::move(profiles));
  }());
  return *kDefault;
}

const FabricProfile* FabricProfiles::Find(std::string_view name) const {
  const auto found =
      std::find_if(profiles_.begin(), profiles_.end(), [&](const FabricProfile& p) { return p.name == name; });
  return found == profiles_.end() ? nullptr : &*found;
}

Fabric FabricOf(const Yard& yard, const std::vector<std::string>& nodes) {
  Fabric fabric{.profile = "NVLink", .why = std::to_string(nodes.size()) + (nodes.size() == 1 ? " node" : " nodes")};
  if (const FabricProfile* profile = yard.fabrics().Find(fabric.profile)) {
    for (const FabricVariable& variable : profile->variables) fabric.environment[variable.name] = variable.value;
  }
  return fabric;
}

}  // namespace trainyard::placement
