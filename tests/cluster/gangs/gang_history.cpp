#include "tests/cluster/gangs/gang_history.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "tests/cluster/gangs/gang_world.h"

namespace trainyard::gangs {
namespace {

using nlohmann::json;

class Replayer {
 public:
  explicit Replayer(const Rules& rules) : rules_(rules), world_(rules.operator_agent, rules.lag) {}

  GangHistory Run(const std::vector<AuditWrite>& writes) {
    for (const AuditWrite& write : writes) {
      now_ = std::max(now_, write.done);
      history_.writes += Counts() && write.outcome == Outcome::kDone;
      for (const World::Change& change : world_.Apply(write, now_)) OnChange(change);
      if (write.resource == "trainingjobs" && write.outcome == Outcome::kDone) OnJob(write);
      // Time passes for all gangs, whoever writes.
      for (const GangKey& key : split_) CheckSplit(key);
    }
    for (const trainyard::gangs::Breach& breach : history_.breaches) {
      for (const std::string& pod : breach.pods) TellLastWrites(pod, writes);
    }
    return std::move(history_);
  }

 private:
  bool Counts() const { return now_ >= rules_.since; }

  void Breach(const std::string& rule, const std::string& what, std::vector<std::string> pods = {}) {
    if (Counts()) history_.breaches.push_back({now_, rule, what, std::move(pods)});
  }

  void TellLastWrites(const std::string& name, const std::vector<AuditWrite>& writes) {
    constexpr size_t kTold = 16;
    std::vector<std::string>& told = history_.last_writes[name];
    if (!told.empty()) return;
    const auto pod = std::find_if(world_.pods.begin(), world_.pods.end(),
                                  [&name](const auto& one) { return one.second.name == name; });
    for (auto write = writes.rbegin(); write != writes.rend() && told.size() < kTold; ++write) {
      if (write->resource == "pods" && write->Concerns(name, pod->second.labels)) told.push_back(write->Line());
    }
    std::reverse(told.begin(), told.end());
  }

  void OnChange(const World::Change& change) {
    const Pod& pod = *change.pod;
    history_.pods += change.is_new && Counts();
    if (change.came && (!pod.IsOurs() || rules_.two_operators)) world_.nodes[pod.node].rival = now_;
    if (change.came || change.began || change.back) CheckBooked(pod);
    int64_t all = 0;
    for (const auto& [name, node] : world_.nodes) all += BookedOn(node);
    if (Counts()) history_.most_booked = std::max(history_.most_booked, all);
    if (!pod.IsOurs()) return;
    if (pod.LetGo()) CheckStart(pod);
    if (pod.LetGo() && (change.is_new || change.began || change.back)) CheckRivalAttempts(pod);
    FollowSplit(pod.gang);
  }

  bool Books(const Pod& pod) const { return pod.Holds() && !(rules_.two_operators && pod.gated); }

  // A pod has begun to hold GPUs of its node.
  void CheckBooked(const Pod& pod) {
    if (!Books(pod) || (!pod.IsOurs() && rules_.rivals)) return;
    const Node& node = world_.nodes[pod.node];
    const int64_t booked = BookedOn(node), gives = node.MostSince(now_ - rules_.lag);
    if (booked <= gives) return;
    std::string who;
    std::vector<std::string> pods;
    for (const std::string& uid : node.pods) {
      const Pod& one = world_.pods.at(uid);
      if (!Books(one)) continue;
      who += fmt::format(" {} ({}{})", one.name, one.gpus, one.gated ? ", gated" : "");
      pods.push_back(one.name);
    }
    Breach("overbooked", fmt::format("{} has {} GPUs to give, and {} are held by{}", pod.node, gives, booked, who),
           pods);
  }

  int64_t BookedOn(const Node& node) const {
    int64_t booked = 0;
    for (const std::string& uid : node.pods) booked += Books(world_.pods.at(uid)) ? world_.pods.at(uid).gpus : 0;
    return booked;
  }

  void CheckStart(const Pod& pod) {
    Gang& gang = world_.gangs[pod.gang];
    if (std::exchange(gang.let_go, true)) return;
    history_.gangs += Counts();
    const auto made = static_cast<int64_t>(gang.pods.size() + gang.unseen.size());
    if (made >= gang.size) return;
    Breach("partly started",
           fmt::format("{} lost its gate when {} of {} pods of its gang existed", pod.name, made, gang.size),
           {pod.name});
  }

  void FollowSplit(const GangKey& key) {
    Gang& gang = world_.gangs[key];
    bool held = false, free = false;
    for (const std::string& uid : gang.pods) {
      const Pod& one = world_.pods.at(uid);
      if (one.Alive() && !one.deleting) (one.gated ? held : free) = true;
    }
    if (held && free) {
      if (!gang.split_since) gang.split_since = now_;
      split_.insert(key);
      return;
    }
    CheckSplit(key);
    gang.split_since.reset();
    split_.erase(key);
  }

  void CheckSplit(const GangKey& key) {
    Gang& gang = world_.gangs[key];
    if (!gang.split_since || gang.split_told || now_ - *gang.split_since <= rules_.start_limit) return;
    gang.split_told = true;
    std::vector<std::string> pods;
    for (const std::string& uid : gang.pods) pods.push_back(world_.pods.at(uid).name);
    Breach("partly started",
           fmt::format("attempt {} of job {} had gates on and gates off for {:.1f} s", key.second, key.first,
                       now_ - *gang.split_since),
           pods);
  }

  // A pod that is being deleted on a node that is gone or silent can do no harm: it is killed when the node is back.
  // That it is back the operator hears a moment later.
  void CheckRivalAttempts(const Pod& pod) {
    const std::string& job = pod.gang.first;
    for (auto it = world_.gangs.lower_bound({job, 0}); it != world_.gangs.end() && it->first.first == job; ++it) {
      if (it->first == pod.gang) continue;
      for (const std::string& uid : it->second.pods) {
        const Pod& other = world_.pods.at(uid);
        const bool lost = !other.node.empty() && world_.nodes[other.node].UnfitSince(now_ - rules_.lag);
        if (!other.LetGo() || (other.deleting && lost)) continue;
        Breach("two attempts",
               fmt::format("{} is let go while {} of attempt {} is", pod.name, other.name, it->first.second),
               {pod.name, other.name});
      }
    }
  }

  void OnJob(const AuditWrite& write) {
    if (write.subresource != "status" || write.removed) return;
    const json status = write.object.value("status", json::object());
    const int64_t attempt = status.value("attempt", int64_t{0});
    if (attempt == 0) return;
    Gang& gang = world_.gangs[{write.uid, attempt}];
    if (status.value("/stop/reason"_json_pointer, "") != "Undo" || gang.undone) return;
    gang.undone = true;
    history_.undone += Counts();
    const Seconds since = gang.claimed - rules_.lag;
    bool excused = gang.harmed || std::any_of(rules_.kills.begin(), rules_.kills.end(),
                                              [&](Seconds kill) { return kill >= since && kill <= now_; });
    for (const std::string& refused : world_.refused) {
      excused = excused || refused.starts_with(write.ns + "/" + write.name + "-");
    }
    for (const json& placed : status.value("/placement/nodes"_json_pointer, json::array())) {
      const Node& node = world_.nodes[placed.value("node", "")];
      excused = excused || !node.fit || node.changed >= since || node.rival >= since;
    }
    if (!excused) {
      Breach("needless undo",
             fmt::format("attempt {} of {}/{}: {}", attempt, write.ns, write.name, status.value("reason", "")));
    }
  }

  const Rules rules_;
  World world_;
  GangHistory history_;
  Seconds now_ = 0;
  std::set<GangKey> split_;
};

}  // namespace

std::string GangHistory::Totals() const {
  return fmt::format("{} writes, {} pods, {} gangs let go, {} taken back, at most {} GPUs booked at once", writes, pods,
                     gangs, undone, most_booked);
}

std::string GangHistory::Summary() const {
  std::string text = Totals();
  for (const Breach& breach : breaches) text += fmt::format("\n  {:.3f} {}: {}", breach.when, breach.rule, breach.what);
  for (const auto& [pod, lines] : last_writes) {
    text += "\n  the last writes about " + pod;
    for (const std::string& line : lines) text += "\n    " + line;
  }
  return text;
}

GangHistory Replay(const std::vector<AuditWrite>& writes, const Rules& rules) { return Replayer(rules).Run(writes); }

}  // namespace trainyard::gangs
