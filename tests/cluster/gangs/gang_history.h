// What the writes of an audit log add up to, held against the promises of placement. Nothing here is read from the
// operator: pods say themselves what they hold, where they are pinned and to which gang they belong.
// Thread-safety: pure functions.
//
// overbooked     at every instant, on each node, the GPUs of all pods that are pinned there (gated or not: the books
//                must have counted them) or bound there, and have not ended, are at most what it has to give. Nodes
//                that shrink or go under their pods break nothing; pods that come afterwards do.
// partly started no gang has pods with and without its gate for longer than `start_limit`, and no gate goes before the
//                whole gang exists.
// two attempts   pods of two attempts of one job are never let go at once.
// needless undo  an attempt is taken back only when something had happened to it: a rival pod on its nodes, a node that
//                went, shrank, was cordoned, tainted or not ready, a pod of it that somebody else deleted or that
//                failed, or a pod that the API server refused. That the scheduler cannot bind a pod is no excuse.
//
// Where nobody knows whether a write was carried out, nobody is accused on the strength of it. A pod that may have been
// deleted holds nothing until a later request shows it alive. A pod that may have been made, lost its gate or been
// bound is taken to be there, without its gate or bound from the next write that shows it. A node that may have changed
// has room for all and is unfit until it is written again.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/cluster/gangs/audit_log.h"

namespace trainyard::gangs {

struct Rules {
  std::string operator_agent = "trainyard-operator";  // how its user agent begins
  Seconds start_limit = 60;
  // How far what the operator knows of nodes may be behind: what a node had this long ago may still be claimed.
  Seconds lag = 5;
  bool rivals = false;  // pods of others that come to pinned GPUs are no breach: the test sent them
  // Two operators that know nothing of each other may pin the same GPUs, and take that back before any gate goes: only
  // pods without a gate count, and those of the other one are rivals.
  bool two_operators = false;
  Seconds since = 0;  // what was before this is another test's: it is not counted and no breach
  // When the test killed the operator. The claim that the dead one was just writing may land after the next one has
  // looked: within `lag` of such a moment an undo is no breach.
  std::vector<Seconds> kills;
};

struct Breach {
  Seconds when = 0;
  std::string rule;
  std::string what;
  std::vector<std::string> pods;  // that it is about: namespace/name
};

struct GangHistory {
  std::vector<Breach> breaches;
  int64_t writes = 0, pods = 0, gangs = 0, undone = 0;  // gangs: attempts whose gates went
  int64_t most_booked = 0;                              // GPUs at once, of all nodes
  // The last writes about each pod that a breach is about, in the order of the store.
  std::map<std::string, std::vector<std::string>> last_writes;
  std::string Totals() const;   // one line
  std::string Summary() const;  // and all breaches, with those writes
};

GangHistory Replay(const std::vector<AuditWrite>& writes, const Rules& rules);

}  // namespace trainyard::gangs
