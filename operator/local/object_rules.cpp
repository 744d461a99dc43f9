#include "operator/local/object_rules.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

#include "operator/base/ids.h"

namespace trainyard::local {
namespace {

using cluster::Kind;
using nlohmann::json;

constexpr size_t kMaxName = 253;
constexpr size_t kMaxLabel = 63;

tl::unexpected<Error> Invalid(Kind kind, const json& object, const std::string& problem) {
  return Fail(ErrorCode::kInvalidArgument, std::string(cluster::InfoOf(kind).kind) + " \"" +
                                               cluster::ToString(cluster::KeyOf(object)) + "\" is invalid: " + problem);
}

// RFC 1123: lower-case letters, digits, '-' inside; dots too in a subdomain.
bool IsDnsName(std::string_view name, bool subdomain) {
  if (name.empty() || name.size() > (subdomain ? kMaxName : kMaxLabel)) return false;
  const auto alphanumeric = [](unsigned char c) { return std::islower(c) || std::isdigit(c); };
  for (size_t i = 0; i < name.size(); ++i) {
    const bool edge = i == 0 || i + 1 == name.size() || name[i - 1] == '.' || name[i + 1] == '.';
    if (alphanumeric(name[i])) continue;
    if (name[i] == '-' && !edge) continue;
    if (name[i] == '.' && subdomain && !edge) continue;
    return false;
  }
  return true;
}

std::string RandomSuffix() {
  const std::string uid = NewUid();
  return uid.substr(uid.size() - 5);
}

bool IsStringMap(const json& metadata, const char* key) {
  const auto found = metadata.find(key);
  if (found == metadata.end() || found->is_null()) return true;
  return found->is_object() && std::all_of(found->begin(), found->end(), [](const json& v) { return v.is_string(); });
}

// Shapes that the rest of this room relies on.
Status CheckMetadata(Kind kind, const json& object) {
  const json& metadata = object["metadata"];
  for (const char* key : {"labels", "annotations"}) {
    if (!IsStringMap(metadata, key)) {
      return Invalid(kind, object, "metadata." + std::string(key) + ": must map strings to strings");
    }
  }
  if (const auto owners = metadata.find("ownerReferences"); owners != metadata.end() && !owners->is_null()) {
    const bool good =
        owners->is_array() && std::all_of(owners->begin(), owners->end(), [](const json& owner) {
          const auto text = [&](const char* key) { return owner.contains(key) && owner[key].is_string(); };
          return owner.is_object() && text("uid") && text("kind") && text("name") && text("apiVersion");
        });
    if (!good) return Invalid(kind, object, "metadata.ownerReferences: each needs apiVersion, kind, name and uid");
  }
  if (const auto finalizers = metadata.find("finalizers"); finalizers != metadata.end() && !finalizers->is_null()) {
    const bool good = finalizers->is_array() && std::all_of(finalizers->begin(), finalizers->end(),
                                                            [](const json& name) { return name.is_string(); });
    if (!good) return Invalid(kind, object, "metadata.finalizers: must be a list of strings");
  }
  for (const char* key : {"spec", "status"}) {
    if (object.contains(key) && !object[key].is_object()) {
      return Invalid(kind, object, std::string(key) + ": must be an object");
    }
  }
  return {};
}

Status CheckPodSpec(const json& pod) {
  const json containers = pod.value("/spec/containers"_json_pointer, json());
  const bool good = containers.is_array() && !containers.empty() &&
                    std::all_of(containers.begin(), containers.end(), [](const json& container) {
                      return container.is_object() && container.contains("name") && container["name"].is_string();
                    });
  if (!good) return Invalid(Kind::kPod, pod, "spec.containers: at least one is required, each with a name");
  const json gates = pod.value("/spec/schedulingGates"_json_pointer, json::array());
  const bool named = gates.is_array() && std::all_of(gates.begin(), gates.end(), [](const json& gate) {
                       return gate.is_object() && gate.contains("name") && gate["name"].is_string();
                     });
  if (!named) return Invalid(Kind::kPod, pod, "spec.schedulingGates: each needs a name");
  return {};
}

// A pod's spec with what may change taken out.
json FrozenSpec(const json& pod, bool gated) {
  json spec = pod.value("spec", json::object());
  for (const char* key : {"schedulingGates", "tolerations", "activeDeadlineSeconds"}) spec.erase(key);
  if (gated) {
    for (const char* key : {"nodeSelector", "affinity"}) spec.erase(key);
  }
  for (json& container : spec["containers"]) container.erase("image");
  return spec;
}

Status CheckPodChange(const json& old, const json& next) {
  if (Status status = CheckPodSpec(next); !status) return status;
  if (FrozenSpec(old, IsGated(old)) != FrozenSpec(next, IsGated(old))) {
    return Invalid(Kind::kPod, next,
                   "spec: a pod's spec may not change, but for images, tolerations, activeDeadlineSeconds and the "
                   "removal of scheduling gates");
  }
  const json old_gates = old.value("/spec/schedulingGates"_json_pointer, json::array());
  for (const json& gate : next.value("/spec/schedulingGates"_json_pointer, json::array())) {
    if (std::find(old_gates.begin(), old_gates.end(), gate) == old_gates.end()) {
      return Invalid(Kind::kPod, next, "spec.schedulingGates: gates can only be removed");
    }
  }
  return {};
}

Status CheckIdentity(Kind kind, const json& old, const json& next) {
  if (!next.is_object() || !next.contains("metadata") || !next["metadata"].is_object()) {
    return Fail(ErrorCode::kInvalidArgument,
                std::string(cluster::InfoOf(kind).kind) + ": an object with metadata is needed");
  }
  if (cluster::KeyOf(next) != cluster::KeyOf(old))
    return Invalid(kind, old, "metadata.name and namespace cannot change");
  const auto conflict = [&](const std::string& what) {
    return Fail(ErrorCode::kConflict, std::string(cluster::InfoOf(kind).kind) + " \"" +
                                          cluster::ToString(cluster::KeyOf(old)) + "\": " + what +
                                          "; read it again and retry");
  };
  const std::string uid = cluster::UidOf(next);
  if (!uid.empty() && uid != cluster::UidOf(old)) return conflict("is another object by now (its UID differs)");
  const std::string version = cluster::ResourceVersionOf(next);
  if (version.empty() && kind == Kind::kTrainingJob) {
    return Invalid(kind, next, "metadata.resourceVersion: must be given for an update");
  }
  if (!version.empty() && version != cluster::ResourceVersionOf(old)) return conflict("has changed meanwhile");
  return {};
}

bool SpecChanged(const json& old, const json& next) {
  json a = old;
  json b = next;
  for (json* object : {&a, &b}) {
    object->erase("metadata");
    object->erase("status");
  }
  return a != b;
}

}  // namespace

bool HasStatus(Kind kind) { return kind != Kind::kEvent && kind != Kind::kLease && kind != Kind::kPriorityClass; }

std::string TextAt(const json& object, const json::json_pointer& pointer) {
  if (!object.contains(pointer)) return {};
  const json& found = object.at(pointer);
  return found.is_string() ? found.get<std::string>() : std::string();
}

bool IsGated(const json& pod) {
  const json gates = pod.value("/spec/schedulingGates"_json_pointer, json());
  return gates.is_array() && !gates.empty();
}

bool SetCondition(json& object, const std::string& type, const std::string& status, const std::string& reason,
                  const std::string& message, TimePoint now) {
  json& conditions = object["status"]["conditions"];
  if (!conditions.is_array()) conditions = json::array();
  json* found = nullptr;
  for (json& condition : conditions) {
    if (condition.is_object() && condition.value("type", json()) == type) found = &condition;
  }
  if (!found) {
    conditions.push_back({{"type", type}});
    found = &conditions.back();
  }
  json next = {{"type", type}, {"status", status}, {"lastTransitionTime", FormatTime(now)}};
  if (!reason.empty()) next["reason"] = reason;
  if (!message.empty()) next["message"] = message;
  if (found->value("status", json()) == status) next["lastTransitionTime"] = (*found)["lastTransitionTime"];
  if (*found == next) return false;
  *found = std::move(next);
  return true;
}

Status PrepareCreate(Kind kind, TimePoint now, json& object) {
  const cluster::KindInfo& info = cluster::InfoOf(kind);
  if (!object.is_object() || !object.contains("metadata") || !object["metadata"].is_object()) {
    return Fail(ErrorCode::kInvalidArgument, std::string(info.kind) + ": an object with metadata is needed");
  }
  for (const auto& [key, wanted] : {std::pair{"kind", info.kind}, std::pair{"apiVersion", info.api_version}}) {
    if (!object.contains(key)) object[key] = wanted;
    if (object[key] != wanted) {
      return Invalid(kind, object, std::string(key) + ": must be " + std::string(wanted));
    }
  }
  json& metadata = object["metadata"];
  for (const char* key : {"uid", "resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "generation",
                          "creationTimestamp", "selfLink", "managedFields"}) {
    metadata.erase(key);
  }
  if (!info.namespaced) {
    metadata.erase("namespace");
  } else if (cluster::KeyOf(object).ns.empty()) {
    metadata["namespace"] = "default";
  }
  const std::string prefix = metadata.contains("generateName") && metadata["generateName"].is_string()
                                 ? metadata["generateName"].get<std::string>()
                                 : std::string();
  if (cluster::KeyOf(object).name.empty() && !prefix.empty()) metadata["name"] = prefix + RandomSuffix();
  const cluster::ObjectKey key = cluster::KeyOf(object);
  if (!IsDnsName(key.name, kind != Kind::kService)) {
    return Invalid(kind, object, "metadata.name: must be lower-case letters, digits and '-', not \"" + key.name + "\"");
  }
  if (info.namespaced && !IsDnsName(key.ns, false)) return Invalid(kind, object, "metadata.namespace: is no DNS label");
  if (Status status = CheckMetadata(kind, object); !status) return status;
  if (kind == Kind::kPod) {
    if (Status status = CheckPodSpec(object); !status) return status;
    if (!cluster::ResourceVersionOf(object).empty()) return Invalid(kind, object, "metadata.resourceVersion: not here");
  }
  metadata["uid"] = NewUid();
  metadata["creationTimestamp"] = FormatTime(now);
  if (kind == Kind::kTrainingJob || kind == Kind::kPod) metadata["generation"] = 1;
  // A Node keeps its status: kubelets register with it.
  if (HasStatus(kind) && kind != Kind::kNode) object.erase("status");
  if (kind == Kind::kPod) {
    object["status"] = {{"phase", "Pending"}};
    json& spec = object["spec"];
    if (!spec.contains("terminationGracePeriodSeconds")) spec["terminationGracePeriodSeconds"] = 30;
    if (!spec.contains("restartPolicy")) spec["restartPolicy"] = "Always";
    if (IsGated(object)) {
      SetCondition(object, "PodScheduled", "False", "SchedulingGated",
                   "Scheduling is blocked due to non-empty scheduling gates", now);
    }
  }
  return {};
}

Status PrepareReplace(Kind kind, const json& old, json& next) {
  if (Status status = CheckIdentity(kind, old, next); !status) return status;
  if (Status status = CheckMetadata(kind, next); !status) return status;
  json& metadata = next["metadata"];
  const json& before = old["metadata"];
  metadata.erase("managedFields");
  for (const char* key : {"uid", "resourceVersion", "creationTimestamp", "deletionTimestamp",
                          "deletionGracePeriodSeconds", "generation"}) {
    if (before.contains(key)) {
      metadata[key] = before[key];
    } else {
      metadata.erase(key);
    }
  }
  next["kind"] = old["kind"];
  next["apiVersion"] = old["apiVersion"];
  if (before.contains("deletionTimestamp")) {
    const json old_finalizers = before.value("finalizers", json::array());
    for (const json& finalizer : metadata.value("finalizers", json::array())) {
      if (std::find(old_finalizers.begin(), old_finalizers.end(), finalizer) == old_finalizers.end()) {
        return Invalid(kind, old, "metadata.finalizers: no new finalizer can be added to an object being deleted");
      }
    }
  }
  if (HasStatus(kind)) {
    if (old.contains("status")) {
      next["status"] = old["status"];
    } else {
      next.erase("status");
    }
  }
  if (kind == Kind::kPod) {
    if (Status status = CheckPodChange(old, next); !status) return status;
  }
  if (before.contains("generation") && SpecChanged(old, next)) {
    metadata["generation"] = before["generation"].get<int64_t>() + 1;
  }
  return {};
}

Status PrepareStatus(Kind kind, const json& old, json& next) {
  if (!HasStatus(kind)) {
    return Fail(ErrorCode::kNotFound, std::string(cluster::InfoOf(kind).kind) + " has no status subresource");
  }
  if (Status status = CheckIdentity(kind, old, next); !status) return status;
  json status = next.value("status", json::object());
  if (!status.is_object()) return Invalid(kind, old, "status: must be an object");
  next = old;
  next["status"] = std::move(status);
  return {};
}

Result<json> ApplyPatch(cluster::PatchType type, const json& patch, const json& object) {
  json patched = object;
  if (type == cluster::PatchType::kMerge) {
    if (!patch.is_object()) return Fail(ErrorCode::kInvalidArgument, "merge patch: must be an object");
    patched.merge_patch(patch);
    return patched;
  }
  try {
    return patched.patch(patch);
  } catch (const json::other_error& error) {  // id 501: a test that does not hold
    return Fail(ErrorCode::kConflict, std::string("JSON patch: ") + error.what());
  } catch (const json::exception& error) {
    return Fail(ErrorCode::kInvalidArgument, std::string("JSON patch: ") + error.what());
  }
}

}  // namespace trainyard::local
