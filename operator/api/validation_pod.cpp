#include "operator/api/validation_pod.h"

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "operator/api/names.h"
#include "operator/api/pod_fields.h"
#include "operator/api/snapshot.h"
#include "operator/base/quantity.h"

namespace trainyard::api {
namespace {

using nlohmann::json;

const std::string kMetadata = "spec.podTemplate.metadata.";
const std::string kSpec = "spec.podTemplate.spec.";
constexpr size_t kMaxKeys = 64;
constexpr size_t kMaxAnnotationBytes = 65'536;

void CheckKey(Checks& c, const std::string& path, const std::string& key) {
  if (!IsQualifiedName(key)) {
    c.Report(path, Quoted(key) +
                       " is not a name such as example.com/rack: at most 63 letters, digits, '-', '_', '.', "
                       "after a DNS name and '/', or alone");
  }
}

void CheckLabelValue(Checks& c, const std::string& path, const std::string& value) {
  if (!IsLabelValue(value)) {
    c.Report(path, Quoted(value) +
                       " is not the value of a label: at most 63 letters, digits, '-', '_', '.', the first "
                       "and the last a letter or digit");
  }
}

void CheckMetadata(Checks& c, const PodTemplate& pods) {
  auto keys = [&c](const std::string& path, const std::map<std::string, std::string>& entries) {
    c.Items(path, entries.size(), kMaxKeys);
    for (const auto& [key, value] : entries) {
      CheckKey(c, path, key);
      if (key.starts_with("trainyard.dev/")) {
        c.Report(path, Quoted(key) + " is reserved; keys must not start with trainyard.dev/");
      }
    }
  };
  keys(kMetadata + "labels", pods.labels);
  for (const auto& [key, value] : pods.labels) CheckLabelValue(c, kMetadata + "labels[" + Printable(key) + "]", value);
  keys(kMetadata + "annotations", pods.annotations);
  for (const auto& [key, value] : pods.annotations) {
    c.Length(kMetadata + "annotations[" + Printable(key) + "]", value, kMaxAnnotationBytes);
  }
}

bool OneOf(const std::string& word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

void CheckEnum(Checks& c, const std::string& path, const std::string& word,
               const std::vector<std::string_view>& known) {
  if (std::find(known.begin(), known.end(), word) != known.end()) return;
  c.Report(path, Quoted(word) + " is not a value of this field; " + Suggest(word, known));
}

void CheckToleration(Checks& c, const std::string& p, const Toleration& t) {
  if (!t.op.empty()) CheckEnum(c, p + ".operator", t.op, {"Equal", "Exists"});
  if (!t.effect.empty()) CheckEnum(c, p + ".effect", t.effect, {"NoSchedule", "PreferNoSchedule", "NoExecute"});
  if (!t.key.empty()) CheckKey(c, p + ".key", t.key);
  if (t.key.empty() && t.op != "Exists") c.Report(p + ".key", "is required unless operator is Exists");
  if (t.op == "Exists" && !t.value.empty()) c.Report(p + ".value", "has no meaning when operator is Exists");
  CheckLabelValue(c, p + ".value", t.value);
  if (t.seconds && t.effect != "NoExecute") {
    c.Report(p + ".tolerationSeconds", "has no meaning unless effect is NoExecute");
  }
}

bool IsInteger(const std::string& text) {
  return !text.empty() && text.size() <= 18 && text.find_first_not_of("0123456789") == std::string::npos;
}

void CheckExpression(Checks& c, const std::string& p, const NodeRequirement& r) {
  if (c.Required(p + ".key", r.key, "the key of a label")) CheckKey(c, p + ".key", r.key);
  CheckEnum(c, p + ".operator", r.op, {"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"});
  const std::string values = p + ".values";
  c.Items(values, r.values.size(), 256);
  for (size_t i = 0; i < r.values.size(); ++i) CheckLabelValue(c, At(values, i), r.values[i]);
  if (OneOf(r.op, {"In", "NotIn"}) && r.values.empty()) {
    c.Report(values, "is required when operator is In or NotIn");
  } else if (OneOf(r.op, {"Exists", "DoesNotExist"}) && !r.values.empty()) {
    c.Report(values, "has no meaning when operator is Exists or DoesNotExist");
  } else if (OneOf(r.op, {"Gt", "Lt"}) && (r.values.size() != 1 || !IsInteger(r.values[0]))) {
    c.Report(values, "must be one integer when operator is Gt or Lt");
  }
}

void CheckField(Checks& c, const std::string& p, const NodeRequirement& r) {
  CheckEnum(c, p + ".key", r.key, {"metadata.name"});
  CheckEnum(c, p + ".operator", r.op, {"In", "NotIn"});
  if (r.values.size() != 1) {
    c.Report(p + ".values", "must have 1 item, has " + std::to_string(r.values.size()));
  } else {
    c.Length(At(p + ".values", 0), r.values[0], 253);
  }
}

void CheckNodes(Checks& c, const NodeConstraints& nodes) {
  c.Items(kSpec + "nodeSelector", nodes.node_selector.size(), kMaxKeys);
  for (const auto& [key, value] : nodes.node_selector) {
    CheckKey(c, kSpec + "nodeSelector", key);
    CheckLabelValue(c, kSpec + "nodeSelector[" + Printable(key) + "]", value);
  }
  const std::string terms = kSpec +
                            "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution."
                            "nodeSelectorTerms";
  c.Items(terms, nodes.affinity.size(), 16);
  for (size_t i = 0; i < nodes.affinity.size(); ++i) {
    const NodeTerm& term = nodes.affinity[i];
    const std::string expressions = At(terms, i) + ".matchExpressions";
    const std::string fields = At(terms, i) + ".matchFields";
    c.Items(expressions, term.expressions.size(), 32);
    c.Items(fields, term.fields.size(), 8);
    for (size_t k = 0; k < term.expressions.size(); ++k) CheckExpression(c, At(expressions, k), term.expressions[k]);
    for (size_t k = 0; k < term.fields.size(); ++k) CheckField(c, At(fields, k), term.fields[k]);
  }
  c.Items(kSpec + "tolerations", nodes.tolerations.size(), 64);
  for (size_t i = 0; i < nodes.tolerations.size(); ++i) {
    CheckToleration(c, At(kSpec + "tolerations", i), nodes.tolerations[i]);
  }
}

const json& Member(const json& object, const char* name, const json& otherwise) {
  auto found = object.find(name);
  return found == object.end() || found->type() != otherwise.type() ? otherwise : *found;
}

const json kNoObject = json::object();
const json kNoList = json::array();

// The GPUs of a pod are those that the ledger counts for it: nobody else may ask for some.
void CheckResources(Checks& c, const std::string& p, const json& container) {
  const json& resources = Member(container, "resources", kNoObject);
  for (const auto& [list, amounts] : resources.items()) {
    const std::string path = p + ".resources." + Printable(list);
    if (list != "requests" && list != "limits") {
      c.Report(path, "is not known here; known are requests, limits");
      continue;
    }
    if (!amounts.is_object()) {
      c.Report(path, "must be an object of names and quantities");
      continue;
    }
    for (const auto& [name, amount] : amounts.items()) {
      const std::string at = path + "[" + Printable(name) + "]";
      if (name == kGpuResource) c.Report(at, "cannot be set: the GPUs of a pod follow from spec.gpus");
      CheckKey(c, at, name);
      const std::string text = amount.is_string() ? amount.get<std::string>() : amount.dump();
      if (!ParseQuantity(text)) c.Report(at, Quoted(text) + " is not a quantity such as 16Gi or 8");
    }
  }
}

// What the operator does not set of its own container. Everything else there is the job's, under a name of its own.
constexpr std::array<std::pair<const char*, const char*>, 3> kSpecHas = {
    {{"image", "spec.image"}, {"command", "spec.command"}, {"args", "spec.args"}}};

void CheckTrainerContainer(Checks& c, const std::string& p, const json& container, const Spec& spec) {
  for (const auto& [name, value] : container.items()) {
    if (OneOf(name, {"name", "env", "envFrom", "volumeMounts", "resources", "securityContext", "imagePullPolicy"})) {
      continue;
    }
    auto ours = std::find_if(kSpecHas.begin(), kSpecHas.end(), [&](const auto& e) { return name == e.first; });
    c.Report(p + "." + Printable(name), ours != kSpecHas.end()
                                            ? "cannot be set here: use " + std::string(ours->second)
                                            : "cannot be set for container trainer, which takes env, envFrom, "
                                              "volumeMounts, resources, securityContext and imagePullPolicy");
  }
  for (const char* list : {"env", "envFrom", "volumeMounts"}) {
    const json& entries = container.value(list, kNoList);
    const bool good = entries.is_array() && std::all_of(entries.begin(), entries.end(), [](const json& e) {
                        return e.is_object() && (!e.contains("name") || e["name"].is_string());
                      });
    if (!good) c.Report(p + "." + list, "must be a list of objects");
  }
  for (const char* object : {"resources", "securityContext"}) {
    if (container.contains(object) && !container[object].is_object()) c.Report(p + "." + object, "must be an object");
  }
  for (const json& entry : Member(container, "env", kNoList)) {
    const std::string name = entry.is_object() && entry.contains("name") && entry["name"].is_string()
                                 ? entry["name"].get<std::string>()
                                 : "";
    if (!c.Required(p + ".env", name, "a name in each entry")) continue;
    const bool twice = std::any_of(spec.env.begin(), spec.env.end(), [&](const EnvVar& e) { return e.name == name; });
    if (twice) c.Report(p + ".env", Quoted(name) + " is given in spec.env as well");
  }
}

void CheckContainers(Checks& c, const json& rest, const char* list, const Spec& spec) {
  const json& containers = Member(rest, list, kNoList);
  const std::string path = kSpec + list;
  c.Items(path, containers.size(), 16);
  std::set<std::string> seen;
  for (size_t i = 0; i < containers.size(); ++i) {
    const std::string p = At(path, i);
    const std::string name = containers[i]["name"];
    if (!IsDnsLabel(name)) c.Report(p + ".name", Quoted(name) + " is not a DNS label");
    c.Unique(p + ".name", name, seen);
    CheckResources(c, p, containers[i]);
    if (name != "trainer") continue;
    if (std::string_view(list) == "initContainers") {
      c.Report(p + ".name", "'trainer' is the name of the container that trains");
    } else {
      CheckTrainerContainer(c, p, containers[i], spec);
    }
  }
}

void CheckVolumes(Checks& c, const json& rest, const Spec& spec) {
  const json& volumes = Member(rest, "volumes", kNoList);
  c.Items(kSpec + "volumes", volumes.size(), 64);
  std::set<std::string> seen;
  for (const Volume& volume : spec.volumes) seen.insert(volume.name);
  for (size_t i = 0; i < volumes.size(); ++i) {
    const std::string p = At(kSpec + "volumes", i) + ".name";
    const std::string name = volumes[i]["name"];
    if (!IsDnsLabel(name)) c.Report(p, Quoted(name) + " is not a DNS label");
    if (name.starts_with(kReservedVolumePrefix)) {
      c.Report(p, Quoted(name) + " is reserved; names must not start with " + kReservedVolumePrefix);
    }
    c.Unique(p, name, seen);
  }
}

void CheckRest(Checks& c, const Spec& spec) {
  const json rest = spec.pod_template.rest.empty() ? json::object() : json::parse(spec.pod_template.rest);
  for (const char* name : {"serviceAccountName", "runtimeClassName", "schedulerName"}) {
    const std::string text = rest.value(name, "");
    if (!text.empty() && !IsDnsSubdomain(text)) c.Report(kSpec + name, Quoted(text) + " is not a DNS name");
  }
  if (rest.contains("dnsPolicy")) {
    CheckEnum(c, kSpec + "dnsPolicy", rest["dnsPolicy"],
              {"ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"});
  }
  const json& secrets = Member(rest, "imagePullSecrets", kNoList);
  c.Items(kSpec + "imagePullSecrets", secrets.size(), 16);
  for (size_t i = 0; i < secrets.size(); ++i) {
    const std::string name = secrets[i]["name"];
    if (!IsDnsSubdomain(name)) {
      c.Report(At(kSpec + "imagePullSecrets", i) + ".name", Quoted(name) + " is not a DNS name");
    }
  }
  CheckContainers(c, rest, "initContainers", spec);
  CheckContainers(c, rest, "containers", spec);
  CheckVolumes(c, rest, spec);
}

}  // namespace

void CheckPodTemplate(Checks& c, const Spec& spec) {
  const PodTemplate& pods = spec.pod_template;
  CheckMetadata(c, pods);
  CheckNodes(c, pods.nodes);
  if (!pods.preferences.empty()) {
    c.Items(kSpec + "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution",
            json::parse(pods.preferences).size(), 16);
  }
  CheckRest(c, spec);
}

}  // namespace trainyard::api
