// What NCCL must be told about the network between the nodes of a gang, and how the operator knows: a profile is chosen
// from what the nodes advertise, and a profile is environment variables, each with its reason. Profiles are data:
// fabric_profiles.yaml is compiled in, a file of the user's changes or replaces it. A variable that a job sets itself
// always wins. Pure. Thread-safety: immutable values.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "operator/base/error.h"

namespace trainyard::placement {

class Yard;

struct Fabric {
  std::string profile;  // "InfiniBand"
  std::string why;      // one line: what the nodes say that made it this one
  std::map<std::string, std::string> environment;
};

struct FabricVariable {
  std::string name, value, reason;
};

struct FabricProfile {
  std::string name;
  std::vector<FabricVariable> variables;
};

class FabricProfiles {
 public:
  static const std::shared_ptr<const FabricProfiles>& Default();
  // Null: no such profile.
  const FabricProfile* Find(std::string_view name) const;
  const std::vector<FabricProfile>& profiles() const { return profiles_; }

 private:
  std::vector<FabricProfile> profiles_;
};

// For a gang on these nodes, in rank order. Nodes that the yard does not know say nothing.
Fabric FabricOf(const Yard& yard, const std::vector<std::string>& nodes);

}  // namespace trainyard::placement
