#include "operator/lifecycle/pod_template.h"

#include <algorithm>
#include <string_view>

#include "operator/base/quantity.h"
#include "trainer/contract/contract.h"

namespace trainyard::lifecycle {
namespace {

using api::Amounts;
using nlohmann::json;

const json kNoObject = json::object();
const json kNoList = json::array();

json Rest(const api::PodTemplate& pods) { return pods.rest.empty() ? json::object() : json::parse(pods.rest); }

const json& Member(const json& object, const char* name, const json& otherwise) {
  auto found = object.find(name);
  return found == object.end() || found->type() != otherwise.type() ? otherwise : *found;
}

bool IsTrainer(const json& container) { return container.value("name", "") == contract::kContainerName; }

const json& TrainerOf(const json& rest) {
  for (const json& container : Member(rest, "containers", kNoList)) {
    if (IsTrainer(container)) return container;
  }
  return kNoObject;
}

// Absent members only: what is there stays.
void AddMissing(json& to, const std::map<std::string, std::string>& entries) {
  for (const auto& [key, value] : entries) to.emplace(key, value);
}

void Append(json& to, const json& more) {
  for (const json& item : more) to.push_back(item);
}

json Requirements(const std::vector<api::NodeRequirement>& requirements) {
  json list = json::array();
  for (const api::NodeRequirement& r : requirements) {
    json entry = {{"key", r.key}, {"operator", r.op}};
    if (!r.values.empty()) entry["values"] = r.values;
    list.push_back(std::move(entry));
  }
  return list;
}

// Not spec.nodeName: the scheduler must still check taints, ports and volumes. Not a hostname label: it may differ.
// First in each term, since that is where a pod's node is read from. `node` empty: no pin.
json Affinity(const api::PodTemplate& pods, const std::string& node) {
  const json pin = {{"key", "metadata.name"}, {"operator", "In"}, {"values", json::array({node})}};
  json terms = json::array();
  for (const api::NodeTerm& term : pods.nodes.affinity) {
    if (term.expressions.empty() && term.fields.empty()) continue;  // it holds for no node; with the pin it would
    json entry = json::object();
    json fields = node.empty() ? json::array() : json::array({pin});
    Append(fields, Requirements(term.fields));
    if (!fields.empty()) entry["matchFields"] = std::move(fields);
    if (!term.expressions.empty()) entry["matchExpressions"] = Requirements(term.expressions);
    terms.push_back(std::move(entry));
  }
  if (terms.empty() && !node.empty()) terms.push_back({{"matchFields", json::array({pin})}});
  json affinity = json::object();
  if (!terms.empty()) affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {{"nodeSelectorTerms", terms}};
  if (!pods.preferences.empty()) {
    affinity["preferredDuringSchedulingIgnoredDuringExecution"] = json::parse(pods.preferences);
  }
  return {{"nodeAffinity", affinity}};
}

json Tolerations(const std::vector<api::Toleration>& tolerations) {
  json list = json::array();
  for (const api::Toleration& t : tolerations) {
    json entry = json::object();
    if (!t.key.empty()) entry["key"] = t.key;
    if (!t.op.empty()) entry["operator"] = t.op;
    if (!t.value.empty()) entry["value"] = t.value;
    if (!t.effect.empty()) entry["effect"] = t.effect;
    if (t.seconds) entry["tolerationSeconds"] = *t.seconds;
    list.push_back(std::move(entry));
  }
  return list;
}

void MergeSecurity(json& ours, const json& theirs) {
  if (!theirs.is_object()) return;
  ours.merge_patch(theirs);
  // Kubernetes refuses the operator's own "no escalation" beside these.
  const json& added = Member(Member(ours, "capabilities", kNoObject), "add", kNoList);
  const bool admin = std::find(added.begin(), added.end(), "SYS_ADMIN") != added.end();
  const bool privileged = ours.contains("privileged") && ours["privileged"] == true;
  if ((admin || privileged) && !theirs.contains("allowPrivilegeEscalation")) ours.erase("allowPrivilegeEscalation");
}

void MergeTrainer(json& container, const json& theirs) {
  if (theirs.empty()) return;
  json& env = container["env"];
  for (const json& entry : Member(theirs, "env", kNoList)) {
    const bool set = std::any_of(env.begin(), env.end(), [&](const json& e) { return e["name"] == entry["name"]; });
    if (!set) env.push_back(entry);
  }
  if (theirs.contains("envFrom")) container["envFrom"] = theirs["envFrom"];
  if (theirs.contains("imagePullPolicy")) container["imagePullPolicy"] = theirs["imagePullPolicy"];
  Append(container["volumeMounts"], Member(theirs, "volumeMounts", kNoList));
  MergeSecurity(container["securityContext"], Member(theirs, "securityContext", kNoObject));
}

std::string TextOf(const json& amount) { return amount.is_string() ? amount.get<std::string>() : amount.dump(); }

// Validation has refused what does not parse.
int64_t AmountOf(const std::string& name, const json& amount) {
  const std::string text = TextOf(amount);
  return (name == "cpu" ? ParseMilliQuantity(text) : ParseQuantity(text)).value_or(0);
}

// A limit stands in where no request is given, as the API server's defaulting does.
Amounts RequestsOf(const json& container) {
  const json& resources = Member(container, "resources", kNoObject);
  Amounts amounts;
  for (const char* list : {"requests", "limits"}) {
    const json& given = Member(resources, list, kNoObject);
    for (const auto& [name, amount] : given.items()) amounts.emplace(name, AmountOf(name, amount));
  }
  return amounts;
}

bool IsComputed(const std::string& name) { return name == "cpu" || name == "memory"; }

std::string Quantity(const std::string& name, int64_t amount) {
  return std::to_string(amount) + (name == "cpu" ? "m" : "");
}

void PlaceNodes(const api::PodTemplate& pods, const std::string& node, json& spec) {
  if (!pods.nodes.node_selector.empty()) spec["nodeSelector"] = pods.nodes.node_selector;
  spec["affinity"] = Affinity(pods, node);
  Append(spec["tolerations"], Tolerations(pods.nodes.tolerations));
}

}  // namespace

json MergeResources(const api::PodTemplate& pods, const Amounts& ours) {
  const json rest = Rest(pods);
  const json& theirs = TrainerOf(rest);
  Amounts requests = ours;
  api::MaxAmounts(requests, RequestsOf(theirs));
  json out = {{"requests", json::object()}, {"limits", json::object()}};
  for (const auto& [name, amount] : requests) {
    out["requests"][name] = Quantity(name, amount);
    if (!IsComputed(name)) out["limits"][name] = Quantity(name, amount);
  }
  const json& limits = Member(Member(theirs, "resources", kNoObject), "limits", kNoObject);
  for (const auto& [name, amount] : limits.items()) out["limits"].emplace(name, TextOf(amount));
  return out;
}

bool AsksFor(const api::PodTemplate& pods, const std::string& resource) {
  const json rest = Rest(pods);
  return RequestsOf(TrainerOf(rest)).contains(resource);
}

bool UsesHostNetwork(const api::PodTemplate& pods) { return Rest(pods).value("hostNetwork", false); }

Amounts RequestsWithTemplate(const api::PodTemplate& pods, const Amounts& trainer) {
  if (pods.rest.empty()) return trainer;
  const json rest = Rest(pods);
  Amounts ours = trainer;
  api::MaxAmounts(ours, RequestsOf(TrainerOf(rest)));
  api::PodSum sum;
  sum.Container(ours);
  for (const json& container : Member(rest, "containers", kNoList)) {
    if (!IsTrainer(container)) sum.Container(RequestsOf(container));
  }
  for (const json& container : Member(rest, "initContainers", kNoList)) {
    sum.InitContainer(RequestsOf(container), container.value("restartPolicy", json()) == "Always");
  }
  return sum.Total();
}

void PlaceLike(const api::PodTemplate& pods, json& pod) {
  json& spec = pod["spec"];
  PlaceNodes(pods, "", spec);
  const json rest = Rest(pods);
  for (const char* name : {"imagePullSecrets", "serviceAccountName", "schedulerName"}) {
    if (rest.contains(name)) spec[name] = rest[name];
  }
  MergeSecurity(spec["securityContext"], Member(rest, "securityContext", kNoObject));
  MergeSecurity(spec["containers"][0]["securityContext"], Member(TrainerOf(rest), "securityContext", kNoObject));
}

void MergeTemplate(const api::PodTemplate& pods, const std::string& node, json& pod) {
  AddMissing(pod["metadata"]["labels"], pods.labels);
  AddMissing(pod["metadata"]["annotations"], pods.annotations);
  json& spec = pod["spec"];
  PlaceNodes(pods, node, spec);
  const json rest = Rest(pods);
  for (const auto& [name, value] : rest.items()) {
    if (name == "containers") {
      MergeTrainer(spec["containers"][0], TrainerOf(rest));
      for (const json& container : value) {
        if (!IsTrainer(container)) spec["containers"].push_back(container);
      }
    } else if (name == "volumes") {
      Append(spec["volumes"], value);
    } else if (name == "securityContext") {
      MergeSecurity(spec["securityContext"], value);
    } else {
      spec[name] = value;
    }
  }
  // The ranks meet by a name of the cluster, which the node's own resolver does not know.
  if (spec.value("hostNetwork", false)) spec.emplace("dnsPolicy", "ClusterFirstWithHostNet");
}

}  // namespace trainyard::lifecycle
