// The audit log of an API server (up.sh --audit-objects) as the history of pods, nodes and jobs: every write that it
// carried out, in the order in which it did. Thread-safety: plain values and pure functions.
#pragma once

#include <cstdint>
#include <istream>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/base/error.h"

namespace trainyard::gangs {

// Seconds since 1970, as the API server's clock had it.
using Seconds = double;

// What became of a write. kUnknown: who asked was gone before the answer, time was up or something broke, and the API
// server may have carried it out nevertheless, wholly or in part, until a moment after `done`.
enum class Outcome { kDone, kRefused, kUnknown };

struct AuditWrite {
  std::string verb;         // create, update, patch, delete; a deletecollection becomes one delete for each object
  std::string resource;     // pods, nodes, trainingjobs
  std::string subresource;  // status, binding, eviction; empty: the object
  std::string ns, name, uid;
  std::string agent;  // who: the user agent
  int code = 0;       // of the answer; 0: there was none
  Outcome outcome = Outcome::kDone;
  // The object as the write left it; of a binding, an eviction and what is unknown, what was asked for; empty of what
  // was refused. A deletion leaves the object as it last was.
  nlohmann::json object;
  bool removed = false;  // the object is gone by this write, for good: a UID never comes back
  // One object of a deletecollection, as it was when the collection was listed. It was deleted by `done`; `removed`
  // says that it went at once unless it had changed by then.
  bool listed = false;
  // Of a deletecollection of which nobody knows what it did: what its objects bear. It has no name.
  std::map<std::string, std::string> labels;
  int64_t version = 0;  // of the object; 0: the answer did not tell
  Seconds received = 0, done = 0;

  // May be about this pod, or whatever it is that it writes, with this namespace/name and these labels.
  bool Concerns(const std::string& full_name, const std::map<std::string, std::string>& borne) const;
  std::string Line() const;  // for people
};

// In the order of the objects' resource versions, which is the order of the store. What tells no version stands where
// it excuses most: a binding or a refusal after all that was done before its answer, a removal or what is unknown right
// after all that was done before its request; so each of them is off by one call's time at most, and never accuses
// falsely. A last line without an end is left out. kInvalidArgument: a line that is no audit event.
//
// Deletions race, and the API server's answers show it. A pod is deleted at once in two steps: it is marked with a
// grace of 0, then taken away. Any other write that comes in between takes it away too, and answers with the object
// that it would have left, which says so; the deletion then answers with the object as it was before both, and no
// version.
Result<std::vector<AuditWrite>> ReadAuditLog(std::istream& log);

}  // namespace trainyard::gangs
