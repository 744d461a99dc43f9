// Pods, nodes and gangs after each write of an audit log. What may or may not have been carried out leaves them in
// doubt. Holds no rule: those are in gang_history.cpp. Thread-safety: none; one thread.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/cluster/gangs/audit_log.h"

namespace trainyard::gangs {

using GangKey = std::pair<std::string, int64_t>;  // UID of the job, attempt

struct Pod {
  std::string name, uid, node;  // name: namespace/name; node: pinned to or bound to
  GangKey gang;
  std::map<std::string, std::string> labels;
  int64_t gpus = 0;
  bool gated = false, bound = false, deleting = false, ended = false;
  bool gone = false;  // for good
  // It may be gone. Only what was asked for after this moment can show that it is not.
  std::optional<Seconds> doubted;

  bool IsOurs() const { return !gang.first.empty(); }
  bool Alive() const { return !gone && !ended && !doubted; }
  bool Holds() const { return Alive() && !node.empty() && gpus > 0; }
  bool LetGo() const { return Alive() && !gated && IsOurs(); }
  void Doubt(Seconds until) { doubted = std::max(until, doubted.value_or(until)); }
};

struct Node {
  std::vector<std::pair<Seconds, int64_t>> gives;  // since when how many GPUs
  bool fit = false;                                // for a gang
  Seconds fit_since = 0;                           // if it is
  Seconds changed = 0;                             // what it is fit for
  Seconds rival = 0;                               // a pod of others came
  std::string state;
  std::string removed;         // UID that is gone for good
  std::set<std::string> pods;  // UIDs

  int64_t MostSince(Seconds when) const;
  bool UnfitSince(Seconds when) const { return !fit || fit_since >= when; }  // at any moment
  void Observe(const AuditWrite& write, Seconds now);
  void Doubt(Seconds now);
};

struct Gang {
  std::set<std::string> pods;    // UIDs of all that ever were
  std::set<std::string> unseen;  // names of those that may have been made
  int64_t size = 0;
  Seconds claimed = 0;
  std::optional<Seconds> split_since;  // some gates are gone and some are not
  bool split_told = false, let_go = false, undone = false, harmed = false;
};

class World {
 public:
  // `operator_agent`: how the user agent of ours begins. `lag`: how long the API server may go on with a request after
  // it gave it up.
  World(std::string operator_agent, Seconds lag) : operator_agent_(std::move(operator_agent)), lag_(lag) {}

  struct Change {
    Pod* pod = nullptr;  // has changed
    bool is_new = false;
    bool came = false;   // to the node where it is now
    bool began = false;  // its gate went
    bool back = false;   // it was in doubt and is alive
  };
  // Writes in the order of the store. `now` never goes back.
  std::vector<Change> Apply(const AuditWrite& write, Seconds now);

  bool Ours(const AuditWrite& write) const { return write.agent.starts_with(operator_agent_); }

  std::map<std::string, Pod> pods;  // by UID
  std::map<std::string, Node> nodes;
  std::map<GangKey, Gang> gangs;
  std::set<std::string> refused;  // namespace and name without the rank of pods that were refused

 private:
  void Refused(const AuditWrite& write);
  std::vector<Change> Unknown(const AuditWrite& write);
  std::vector<Change> OnPod(const AuditWrite& write);
  void OnEviction(const AuditWrite& write, Pod& pod);
  void OnRemoval(const AuditWrite& write, Pod& pod);
  void OnSign(const AuditWrite& write, Pod& pod);
  void OnClaim(const AuditWrite& write);
  Pod* Find(const AuditWrite& write);
  Pod* Add(const AuditWrite& write);
  void Harm(const Pod& pod);
  void Move(Pod& pod, const std::string& name);

  const std::string operator_agent_;
  const Seconds lag_;
  Seconds now_ = 0;
  std::map<std::string, std::string> names_;  // namespace/name: UID of the latest
  std::set<std::string> buried_;              // UIDs that were gone before they were seen
};

}  // namespace trainyard::gangs
