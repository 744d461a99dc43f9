// The audit log of an API server (up.sh --audit-objects) as the history of pods, nodes and jobs: every write that it
// carried out, in the order in which it did. Thread-safety: plain values and pure functions.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/base/error.h"

namespace trainyard::gangs {

// Seconds since 1970, as the API server's clock had it.
using Seconds = double;

struct AuditWrite {
  std::string verb;         // create, update, patch, delete; a deletecollection becomes one delete for each object
  std::string resource;     // pods, nodes, trainingjobs
  std::string subresource;  // status, binding, eviction; empty: the object
  std::string ns, name, uid;
  std::string agent;  // who: the user agent
  int code = 0;       // 2xx: carried out; else it was refused and `object` is empty
  // The object as the write left it; of a binding what was asked for. A deletion leaves the object as it last was.
  nlohmann::json object;
  bool removed = false;  // the object is gone by this write
  Seconds received = 0, done = 0;
};

// In the order of the objects' resource versions, which is the order of the store. What tells no version (a binding,
// the objects of one deletecollection, a refusal) stands where it excuses most: a binding after all that was done
// before its answer, a removal right after all that was done before its request; so each of them is off by one call's
// time at most, and never accuses falsely. A last line without an end is left out. kInvalidArgument: a line that is no
// audit event.
Result<std::vector<AuditWrite>> ReadAuditLog(std::istream& log);

}  // namespace trainyard::gangs
