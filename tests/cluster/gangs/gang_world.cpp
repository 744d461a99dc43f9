#include "tests/cluster/gangs/gang_world.h"

#include <cstdlib>
#include <limits>

#include "operator/cluster/cluster.h"
#include "trainer/contract/contract.h"

namespace trainyard::gangs {

using nlohmann::json;

namespace {

constexpr const char* kGpuResource = "nvidia.com/gpu";

int64_t Number(const json& quantity) {
  if (quantity.is_string()) return std::strtoll(quantity.get_ref<const std::string&>().c_str(), nullptr, 10);
  return quantity.is_number() ? quantity.get<int64_t>() : 0;
}

int64_t GpusOf(const json& pod) {
  const auto of = [&](const char* list, bool sum) {
    int64_t gpus = 0;
    for (const json& container : pod.at("spec").value(list, json::array())) {
      const json limits = container.value("/resources/limits"_json_pointer, json::object());
      const int64_t asks = limits.contains(kGpuResource) ? Number(limits[kGpuResource]) : 0;
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

std::map<std::string, std::string> LabelsOf(const json& pod) {
  return pod.value("/metadata/labels"_json_pointer, std::map<std::string, std::string>());
}

// The gang that its labels name; an empty UID: none.
GangKey GangOf(const std::map<std::string, std::string>& labels) {
  const auto job = labels.find(std::string(contract::kLabelJobUid));
  const auto attempt = labels.find(std::string(contract::kLabelAttempt));
  if (job == labels.end() || attempt == labels.end()) return {};
  return {job->second, std::strtoll(attempt->second.c_str(), nullptr, 10)};
}

}  // namespace

int64_t Node::MostSince(Seconds when) const {
  int64_t most = 0;
  for (size_t i = gives.size(); i-- > 0;) {
    most = std::max(most, gives[i].second);
    if (gives[i].first <= when) break;
  }
  return most;
}

void Node::Observe(const AuditWrite& write, Seconds now) {
  if (!write.uid.empty() && write.uid == removed) return;  // old news: it comes back as another one
  if (write.removed) removed = write.uid;
  // Who deletes a node is told of it in few words.
  const json spec = write.removed ? json::object() : write.object.value("spec", json::object());
  const json status = write.removed ? json::object() : write.object.value("status", json::object());
  const int64_t gpus =
      write.removed ? 0 : Number(status.value("allocatable", json::object()).value(kGpuResource, json(0)));
  std::string seen = write.removed ? "gone" : std::to_string(gpus) + spec.value("taints", json()).dump();
  bool ready = false, tainted = false;
  for (const json& condition : status.value("conditions", json::array())) {
    if (condition.value("type", "") == "Ready") ready = condition.value("status", "") == "True";
    seen += " " + condition.value("type", "") + "=" + condition.value("status", "");
  }
  for (const json& taint : spec.value("taints", json::array())) {
    tainted = tainted || taint.value("effect", "") != "PreferNoSchedule";
  }
  const bool cordoned = spec.value("unschedulable", false);
  const bool was_fit = fit;
  fit = !write.removed && ready && !tainted && !cordoned && gpus > 0;
  if (fit && !was_fit) fit_since = now;
  seen += cordoned ? " cordoned" : "";
  if (seen != state) changed = now;
  state = seen;
  if (gives.empty() || gives.back().second != gpus) gives.emplace_back(now, gpus);
}

void Node::Doubt(Seconds now) {
  fit = false;
  changed = now;
  state.clear();
  gives.emplace_back(now, std::numeric_limits<int64_t>::max());
}

std::vector<World::Change> World::Apply(const AuditWrite& write, Seconds now) {
  now_ = now;
  if (write.outcome == Outcome::kRefused) Refused(write);
  if (write.outcome == Outcome::kUnknown) return Unknown(write);
  if (write.outcome == Outcome::kRefused) return {};
  if (write.resource == "nodes") nodes[write.name].Observe(write, now_);
  if (write.resource == "trainingjobs") OnClaim(write);
  return write.resource == "pods" ? OnPod(write) : std::vector<Change>();
}

// The name says of which gang: JOB-XXXX-N-RANK.
void World::Refused(const AuditWrite& write) {
  constexpr int kConflict = 409;  // it exists already: a repetition of our own
  const bool create = write.resource == "pods" && write.verb == "create" && Ours(write) && write.code != kConflict;
  if (create) refused.insert(write.ns + "/" + write.name.substr(0, write.name.rfind('-')));
}

std::vector<World::Change> World::Unknown(const AuditWrite& write) {
  if (write.resource == "nodes") nodes[write.name].Doubt(now_);
  if (write.resource == "trainingjobs") OnClaim(write);
  if (write.resource != "pods") return {};
  Refused(write);  // or as good as that to who asked
  const std::string name = write.ns + "/" + write.name;
  if (write.verb == "create" && write.subresource.empty()) {
    const GangKey key = GangOf(LabelsOf(write.object));
    if (!key.first.empty()) gangs[key].unseen.insert(name);
  }
  if (write.verb != "delete" && write.subresource != "eviction") return {};
  std::vector<Change> changes;
  for (auto& [uid, pod] : pods) {
    if (!write.Concerns(pod.name, pod.labels) || pod.gone) continue;
    if (!Ours(write)) Harm(pod);
    pod.Doubt(write.done + lag_);
    changes.push_back({&pod});
  }
  return changes;
}

std::vector<World::Change> World::OnPod(const AuditWrite& write) {
  Change change{Find(write)};
  Pod*& pod = change.pod;
  if (pod == nullptr && write.removed && !write.listed) buried_.insert(write.uid);  // who made it is answered later
  if (pod == nullptr && (write.verb == "delete" || !write.object.contains("spec"))) return {};
  change.is_new = pod == nullptr;
  if (change.is_new) pod = Add(write);
  if (pod->gone) return {change};  // old news
  const bool was_doubted = pod->doubted.has_value(), was_gated = pod->gated;
  const std::string was_on = pod->node;
  if (write.subresource == "eviction") {
    OnEviction(write, *pod);
  } else if (write.removed || write.listed) {
    OnRemoval(write, *pod);
  } else {
    OnSign(write, *pod);
  }
  change.came = !pod->node.empty() && pod->node != was_on;
  change.began = was_gated && !pod->gated;
  change.back = was_doubted && !pod->doubted;
  return {change};
}

// What was evicted is deleted; its grace is not told.
void World::OnEviction(const AuditWrite& write, Pod& pod) {
  if (!Ours(write)) Harm(pod);
  const bool force = write.object.value("/deleteOptions/gracePeriodSeconds"_json_pointer, int64_t{-1}) == 0;
  if (force || !pod.bound) pod.Doubt(write.done);
}

void World::OnRemoval(const AuditWrite& write, Pod& pod) {
  if (!Ours(write) && !pod.deleting) Harm(pod);
  if (!write.removed) pod.deleting = true;
  if (write.removed && write.listed) pod.Doubt(write.done);
  if (!write.removed || write.listed) return;
  pod.gone = true;
  if (!pod.node.empty()) nodes[pod.node].pods.erase(pod.uid);
}

// A sign of life.
void World::OnSign(const AuditWrite& write, Pod& pod) {
  if (pod.doubted && write.received > *pod.doubted) pod.doubted.reset();
  if (write.subresource == "binding") {
    pod.bound = true;
    return Move(pod, write.object.value("/target/name"_json_pointer, ""));
  }
  const bool deleting = write.object.value("metadata", json::object()).contains("deletionTimestamp");
  if (deleting && !pod.deleting && !Ours(write)) Harm(pod);
  pod.deleting = pod.deleting || deleting;
  if (!write.object.contains("spec")) return;
  pod.gated = false;
  for (const json& gate : write.object.at("spec").value("schedulingGates", json::array())) {
    pod.gated = pod.gated || gate.value("name", "") == contract::kGangGate;
  }
  const std::string phase = write.object.value("/status/phase"_json_pointer, "");
  pod.ended = phase == "Succeeded" || phase == "Failed";
  if (phase == "Failed") Harm(pod);
  std::string node = write.object.at("spec").value("nodeName", "");
  pod.bound = !node.empty();
  if (node.empty() && pod.IsOurs()) node = PinOf(write.object);
  Move(pod, node);
}

// The first status with a placement is the claim.
void World::OnClaim(const AuditWrite& write) {
  if (write.subresource != "status" || !write.object.is_object()) return;
  const int64_t attempt = write.object.value("/status/attempt"_json_pointer, int64_t{0});
  if (attempt == 0 || !write.object.contains("/status/placement"_json_pointer)) return;
  Gang& gang = gangs[{cluster::UidOf(write.object), attempt}];
  if (gang.claimed == 0) gang.claimed = write.received;
}

Pod* World::Find(const AuditWrite& write) {
  auto named = names_.find(write.ns + "/" + write.name);
  const std::string& uid = !write.uid.empty() ? write.uid : named == names_.end() ? write.uid : named->second;
  auto found = pods.find(uid);
  return found == pods.end() ? nullptr : &found->second;
}

Pod* World::Add(const AuditWrite& write) {
  Pod& pod = pods[write.uid];
  pod.name = write.ns + "/" + write.name, pod.uid = write.uid;
  names_[pod.name] = pod.uid;
  pod.gpus = GpusOf(write.object);
  pod.labels = LabelsOf(write.object);
  pod.gang = GangOf(pod.labels);
  pod.gone = buried_.contains(pod.uid);
  if (!pod.IsOurs()) return &pod;
  Gang& gang = gangs[pod.gang];
  gang.size = GangSizeOf(write.object);
  gang.pods.insert(pod.uid);
  gang.unseen.erase(pod.name);
  return &pod;
}

void World::Harm(const Pod& pod) {
  if (pod.IsOurs()) gangs[pod.gang].harmed = true;
}

// The pod is pinned or bound to this node from now on.
void World::Move(Pod& pod, const std::string& name) {
  if (!pod.node.empty()) nodes[pod.node].pods.erase(pod.uid);
  pod.node = name;
  if (!name.empty()) nodes[name].pods.insert(pod.uid);
}

}  // namespace trainyard::gangs
