// What NCCL must be told about the fabric of a gang, and how the operator knows: a profile is chosen from what the
// nodes advertise, and a profile is environment variables, each with its reason. Profiles are data:
// fabric_profiles.yaml is compiled in and says which there are; a file of the user's changes it. A variable that a job
// sets itself always wins. Pure. Thread-safety: immutable values.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "operator/base/error.h"

namespace trainyard::placement {

class Yard;

struct FabricVariable {
  std::string name, value, reason;
};

struct FabricProfile {
  std::string name;
  std::vector<FabricVariable> variables;
};

class FabricProfiles {
 public:
  // The compiled-in ones.
  static const std::shared_ptr<const FabricProfiles>& Default();
  // {"replace": false, "profiles": [{"name": "InfiniBand", "variables": [{"name": "NCCL_IB_TIMEOUT", "value":
  // "22"}]}]}, which changes the compiled-in ones. Error: kInvalidArgument, one line that names profile, variable and
  // field.
  static Result<FabricProfiles> FromJson(const nlohmann::json& document);
  // The same from YAML; errors begin with `source_name`.
  static Result<FabricProfiles> FromYaml(std::string_view text, std::string_view source_name);

  // Null: no such profile.
  const FabricProfile* Find(std::string_view name) const;
  const std::vector<FabricProfile>& profiles() const { return profiles_; }

 private:
  std::vector<FabricProfile> profiles_;  // one of each name in fabric_profiles.yaml, in its order
};

struct Fabric {
  std::string profile;  // "InfiniBand"; empty: nothing to tell, as on simulated GPUs
  std::string why;      // one line: what the nodes say that made it this one
  std::map<std::string, std::string> environment;
  // Network devices that a pod should ask for which has all GPUs of its node: those that every node has free. Of what
  // is counted in adapters, all of the node that has fewest; of what is shared (more than 16 of it), one.
  std::map<std::string, int64_t> resources;
};

// For a gang on these nodes, in rank order. Nodes that the yard does not know say nothing.
Fabric FabricOf(const Yard& yard, const std::vector<std::string>& nodes);

}  // namespace trainyard::placement
