#include "tests/cluster/gangs/gang_history.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "operator/cluster/cluster.h"
#include "trainer/contract/contract.h"

namespace trainyard::gangs {
namespace {

using nlohmann::json;

constexpr const char* kGpus = "nvidia.com/gpu";

int64_t Number(const json& quantity) {
  if (quantity.is_string()) return std::strtoll(quantity.get_ref<const std::string&>().c_str(), nullptr, 10);
  return quantity.is_number() ? quantity.get<int64_t>() : 0;
}

int64_t GpusOf(const json& pod) {
  const auto of = [&](const char* list, bool sum) {
    int64_t gpus = 0;
    for (const json& container : pod.at("spec").value(list, json::array())) {
      const json limits = container.value("/resources/limits"_json_pointer, json::object());
      const int64_t asks = limits.contains(kGpus) ? Number(limits[kGpus]) : 0;
      gpus = sum ? gpus + asks : std::max(gpus, asks);
    }
    return gpus;
  };
  return std::max(of("containers", true), of("initContainers", false));
}

// The one node that a required node affinity names by its field metadata.name.
std::string PinOf(const json& pod) {
  const auto terms =
      "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms"_json_pointer;
  for (const json& term : pod.value(terms, json::array())) {
    for (const json& field : term.value("matchFields", json::array())) {
      const json values = field.value("values", json::array());
      if (field.value("key", "") == "metadata.name" && values.size() == 1) return values[0];
    }
  }
  return "";
}

int64_t GangSizeOf(const json& pod) {
  for (const json& container : pod.at("spec").value("containers", json::array())) {
    for (const json& variable : container.value("env", json::array())) {
      if (variable.value("name", "") == "NNODES") return Number(variable.value("value", json()));
    }
  }
  return 0;
}

struct Pod {
  std::string name, uid, node, job;
  int64_t gpus = 0, attempt = 0;
  bool gated = false, deleting = false, ended = false, gone = false;
  bool Holds() const { return !gone && !ended && !node.empty(); }
  bool LetGo() const { return !gone && !ended && !gated && !job.empty(); }
};

struct Node {
  std::vector<std::pair<Seconds, int64_t>> gives;  // since when how many GPUs
  bool fit = false;
  Seconds changed = 0;  // what it is fit for
  Seconds rival = 0;    // a pod of others came
  std::string state;
  std::set<std::string> pods;  // UIDs

  int64_t MostSince(Seconds when) const {
    int64_t most = 0;
    for (size_t i = gives.size(); i-- > 0;) {
      most = std::max(most, gives[i].second);
      if (gives[i].first <= when) break;
    }
    return most;
  }
};

using GangKey = std::pair<std::string, int64_t>;  // UID of the job, attempt

struct Gang {
  std::set<std::string> pods;  // UIDs of all that ever were
  int64_t size = 0;
  Seconds claimed = 0;
  std::optional<Seconds> split_since;  // some gates are gone and some are not
  bool split_told = false, let_go = false, undone = false, harmed = false;
};

class Replayer {
 public:
  explicit Replayer(const Rules& rules) : rules_(rules) {}

  GangHistory Run(const std::vector<AuditWrite>& writes) {
    for (const AuditWrite& write : writes) {
      now_ = std::max(now_, write.done);
      if (write.code / 100 != 2) {
        Refused(write);
        continue;
      }
      history_.writes += Counts();
      if (write.resource == "nodes") OnNode(write);
      if (write.resource == "pods") OnPod(write);
      if (write.resource == "trainingjobs") OnJob(write);
      // Time passes for all gangs, whoever writes.
      for (const GangKey& key : split_) CheckSplit(key);
    }
    return std::move(history_);
  }

 private:
  bool Ours(const AuditWrite& write) const { return write.agent.starts_with(rules_.operator_agent); }

  bool Counts() const { return now_ >= rules_.since; }

  void Breach(const std::string& rule, const std::string& what) {
    if (Counts()) history_.breaches.push_back({now_, rule, what});
  }

  // A create that the API server refuses is reason enough to take the gang back. The name says which: JOB-XXXX-N-RANK.
  void Refused(const AuditWrite& write) {
    constexpr int kConflict = 409;  // it exists already: a repetition of our own
    const bool create = write.resource == "pods" && write.verb == "create" && Ours(write) && write.code != kConflict;
    if (create) refused_.insert(write.ns + "/" + write.name.substr(0, write.name.rfind('-')));
  }

  void OnNode(const AuditWrite& write) {
    Node& node = nodes_[write.name];
    // Who deletes a node is told of it in few words.
    const json spec = write.removed ? json::object() : write.object.value("spec", json::object());
    const json status = write.removed ? json::object() : write.object.value("status", json::object());
    const int64_t gpus = write.removed ? 0 : Number(status.value("allocatable", json::object()).value(kGpus, json(0)));
    std::string state = write.removed ? "gone" : std::to_string(gpus) + spec.value("taints", json()).dump();
    bool ready = false, tainted = false;
    for (const json& condition : status.value("conditions", json::array())) {
      if (condition.value("type", "") == "Ready") ready = condition.value("status", "") == "True";
      state += " " + condition.value("type", "") + "=" + condition.value("status", "");
    }
    for (const json& taint : spec.value("taints", json::array())) {
      tainted = tainted || taint.value("effect", "") != "PreferNoSchedule";
    }
    const bool cordoned = spec.value("unschedulable", false);
    node.fit = !write.removed && ready && !tainted && !cordoned && gpus > 0;
    state += cordoned ? " cordoned" : "";
    if (state != node.state) node.changed = now_;
    node.state = state;
    if (node.gives.empty() || node.gives.back().second != gpus) node.gives.emplace_back(now_, gpus);
  }

  void OnPod(const AuditWrite& write) {
    Pod* pod = Find(write);
    if (write.subresource == "eviction") {
      if (pod != nullptr && !Ours(write)) Harm(*pod);
      return;
    }
    if (write.removed) {
      if (pod == nullptr) return;
      if (!Ours(write) && !pod->deleting) Harm(*pod);
      pod->gone = true;
      Settle(*pod);
      return;
    }
    if (write.subresource == "binding") {
      if (pod == nullptr || pod->gone) return;
      Move(*pod, write.object.value("/target/name"_json_pointer, ""));
      return Settle(*pod);
    }
    if (!write.object.contains("spec")) return;
    const bool deleting = write.object.at("metadata").contains("deletionTimestamp");
    // Of the objects of one deletecollection the true order is not known: what is seen of one later is old news, unless
    // it says that it is still being deleted.
    if (pod != nullptr && pod->gone && !deleting) return;
    const bool is_new = pod == nullptr;
    if (is_new) pod = Add(write);
    if (deleting && !pod->deleting && !Ours(write)) Harm(*pod);
    const bool was_gated = pod->gated;
    pod->gone = false, pod->deleting = deleting;
    pod->gated = false;
    for (const json& gate : write.object.at("spec").value("schedulingGates", json::array())) {
      pod->gated = pod->gated || gate.value("name", "") == contract::kGangGate;
    }
    const std::string phase = write.object.value("/status/phase"_json_pointer, "");
    pod->ended = phase == "Succeeded" || phase == "Failed";
    if (phase == "Failed") Harm(*pod);
    std::string node = write.object.at("spec").value("nodeName", "");
    if (node.empty() && !pod->job.empty()) node = PinOf(write.object);
    Move(*pod, node);
    if (was_gated && !pod->gated) CheckBooked(*pod);
    Settle(*pod);
  }

  Pod* Find(const AuditWrite& write) {
    auto named = names_.find(write.ns + "/" + write.name);
    const std::string& uid = !write.uid.empty() ? write.uid : named == names_.end() ? write.uid : named->second;
    auto found = pods_.find(uid);
    return found == pods_.end() ? nullptr : &found->second;
  }

  Pod* Add(const AuditWrite& write) {
    Pod& pod = pods_[write.uid];
    history_.pods += Counts();
    pod.name = write.ns + "/" + write.name, pod.uid = write.uid;
    names_[pod.name] = pod.uid;
    pod.gpus = GpusOf(write.object);
    pod.job = cluster::LabelOf(write.object, contract::kLabelJobUid);
    if (pod.job.empty()) return &pod;
    pod.attempt = std::strtoll(cluster::LabelOf(write.object, contract::kLabelAttempt).c_str(), nullptr, 10);
    Gang& gang = gangs_[{pod.job, pod.attempt}];
    gang.size = GangSizeOf(write.object);
    gang.pods.insert(pod.uid);
    return &pod;
  }

  void Harm(const Pod& pod) {
    if (!pod.job.empty()) gangs_[{pod.job, pod.attempt}].harmed = true;
  }

  // The pod is pinned or bound to this node from now on.
  void Move(Pod& pod, const std::string& name) {
    if (pod.node == name) return;
    if (!pod.node.empty()) nodes_[pod.node].pods.erase(pod.uid);
    pod.node = name;
    if (name.empty()) return;
    Node& node = nodes_[name];
    node.pods.insert(pod.uid);
    const bool rival = pod.job.empty();
    if (rival || rules_.two_operators) node.rival = now_;
    if (!rival || !rules_.rivals) CheckBooked(pod);
  }

  // A pod has begun to hold GPUs of its node.
  void CheckBooked(const Pod& pod) {
    if (pod.gpus == 0 || !pod.Holds() || (rules_.two_operators && pod.gated)) return;
    const Node& node = nodes_[pod.node];
    const auto [booked, who] = BookedOn(node);
    const int64_t gives = node.MostSince(now_ - rules_.lag);
    if (booked <= gives) return;
    Breach("overbooked", fmt::format("{} has {} GPUs to give, and {} are held by{}", pod.node, gives, booked, who));
  }

  std::pair<int64_t, std::string> BookedOn(const Node& node) const {
    int64_t booked = 0;
    std::string who;
    for (const std::string& uid : node.pods) {
      const Pod& pod = pods_.at(uid);
      if (!pod.Holds() || pod.gpus == 0 || (rules_.two_operators && pod.gated)) continue;
      booked += pod.gpus;
      who += fmt::format(" {} ({}{})", pod.name, pod.gpus, pod.gated ? ", gated" : "");
    }
    return {booked, who};
  }

  // After a pod has changed.
  void Settle(Pod& pod) {
    if (pod.gone && !pod.node.empty()) nodes_[pod.node].pods.erase(pod.uid);
    if (!pod.gone && !pod.node.empty()) nodes_[pod.node].pods.insert(pod.uid);
    int64_t all = 0;
    for (const auto& [name, node] : nodes_) all += BookedOn(node).first;
    if (Counts()) history_.most_booked = std::max(history_.most_booked, all);
    if (pod.job.empty()) return;
    const GangKey key{pod.job, pod.attempt};
    Gang& gang = gangs_[key];
    if (pod.LetGo() && !gang.let_go) {
      gang.let_go = true;
      history_.gangs += Counts();
      if (static_cast<int64_t>(gang.pods.size()) < gang.size) {
        Breach("partly started", fmt::format("{} lost its gate when {} of {} pods of its gang existed", pod.name,
                                             gang.pods.size(), gang.size));
      }
    }
    if (pod.LetGo()) CheckRivalAttempts(pod);
    bool held = false, free = false;
    for (const std::string& uid : gang.pods) {
      const Pod& one = pods_.at(uid);
      if (one.gone || one.ended || one.deleting) continue;
      (one.gated ? held : free) = true;
    }
    if (held && free && !gang.split_since) gang.split_since = now_;
    if (!held || !free) {
      CheckSplit(key);
      gang.split_since.reset();
    }
    if (gang.split_since) split_.insert(key);
    if (!gang.split_since) split_.erase(key);
  }

  void CheckSplit(const GangKey& key) {
    Gang& gang = gangs_[key];
    if (!gang.split_since || gang.split_told || now_ - *gang.split_since <= rules_.start_limit) return;
    gang.split_told = true;
    Breach("partly started", fmt::format("attempt {} of job {} had gates on and gates off for {:.1f} s", key.second,
                                         key.first, now_ - *gang.split_since));
  }

  // A pod that is being deleted on a node that is gone or silent can do no harm: it is killed when the node is back.
  void CheckRivalAttempts(const Pod& pod) {
    for (auto it = gangs_.lower_bound({pod.job, 0}); it != gangs_.end() && it->first.first == pod.job; ++it) {
      if (it->first.second == pod.attempt) continue;
      for (const std::string& uid : it->second.pods) {
        const Pod& other = pods_.at(uid);
        const bool harmless = other.deleting && !other.node.empty() && !nodes_[other.node].fit;
        if (!other.LetGo() || harmless) continue;
        Breach("two attempts",
               fmt::format("{} is let go while {} of attempt {} is", pod.name, other.name, it->first.second));
      }
    }
  }

  void OnJob(const AuditWrite& write) {
    if (write.subresource != "status" || write.removed) return;
    const json status = write.object.value("status", json::object());
    const int64_t attempt = status.value("attempt", int64_t{0});
    if (attempt == 0) return;
    Gang& gang = gangs_[{write.uid, attempt}];
    if (status.contains("placement") && gang.claimed == 0) gang.claimed = write.received;
    if (status.value("/stop/reason"_json_pointer, "") != "Undo" || gang.undone) return;
    gang.undone = true;
    history_.undone += Counts();
    const Seconds since = gang.claimed - rules_.lag;
    bool excused = gang.harmed || std::any_of(rules_.kills.begin(), rules_.kills.end(),
                                              [&](Seconds kill) { return kill >= since && kill <= now_; });
    for (const std::string& refused : refused_) {
      excused = excused || refused.starts_with(write.ns + "/" + write.name + "-");
    }
    for (const json& placed : status.value("/placement/nodes"_json_pointer, json::array())) {
      const Node& node = nodes_[placed.value("node", "")];
      excused = excused || !node.fit || node.changed >= since || node.rival >= since;
    }
    if (!excused) {
      Breach("needless undo",
             fmt::format("attempt {} of {}/{}: {}", attempt, write.ns, write.name, status.value("reason", "")));
    }
  }

  const Rules rules_;
  GangHistory history_;
  Seconds now_ = 0;
  std::map<std::string, Pod> pods_;           // by UID
  std::map<std::string, std::string> names_;  // namespace/name: UID of the latest
  std::map<std::string, Node> nodes_;
  std::map<GangKey, Gang> gangs_;
  std::set<GangKey> split_;
  std::set<std::string> refused_;  // namespace and name without the rank
};

}  // namespace

std::string GangHistory::Summary() const {
  std::string text = fmt::format("{} writes, {} pods, {} gangs let go, {} taken back, at most {} GPUs booked at once",
                                 writes, pods, gangs, undone, most_booked);
  for (const Breach& breach : breaches) text += fmt::format("\n  {:.3f} {}: {}", breach.when, breach.rule, breach.what);
  return text;
}

GangHistory Replay(const std::vector<AuditWrite>& writes, const Rules& rules) { return Replayer(rules).Run(writes); }

}  // namespace trainyard::gangs
