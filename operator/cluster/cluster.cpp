#include "operator/cluster/cluster.h"

#include "operator/api/training_job.h"

namespace trainyard::cluster {
namespace {

using nlohmann::json;

// A string member of an object; anything else reads as null.
const std::string* StringAt(const json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get_ptr<const std::string*>() : nullptr;
}

const json& MemberAt(const json& object, std::string_view key) {
  static const json kNull;
  if (!object.is_object()) return kNull;
  const auto found = object.find(key);
  return found != object.end() ? *found : kNull;
}

std::string OrEmpty(const std::string* text) { return text ? *text : std::string(); }

}  // namespace

const KindInfo& InfoOf(Kind kind) {
  static constexpr KindInfo kInfos[] = {
      {api::kKind, api::kApiVersion, api::kPlural, true},
      {"Pod", "v1", "pods", true},
      {"Service", "v1", "services", true},
      {"Node", "v1", "nodes", false},
      {"Event", "v1", "events", true},
      {"Lease", "coordination.k8s.io/v1", "leases", true},
      {"PriorityClass", "scheduling.k8s.io/v1", "priorityclasses", false},
  };
  return kInfos[static_cast<int>(kind)];
}

std::string ToString(const ObjectKey& key) { return key.ns.empty() ? key.name : key.ns + "/" + key.name; }

ObjectKey ParseKey(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return {"", std::string(text)};
  return {std::string(text.substr(0, slash)), std::string(text.substr(slash + 1))};
}

ObjectKey KeyOf(const json& object) {
  const json& metadata = MemberAt(object, "metadata");
  return {OrEmpty(StringAt(metadata, "namespace")), OrEmpty(StringAt(metadata, "name"))};
}

std::string UidOf(const json& object) { return OrEmpty(StringAt(MemberAt(object, "metadata"), "uid")); }

std::string ResourceVersionOf(const json& object) {
  return OrEmpty(StringAt(MemberAt(object, "metadata"), "resourceVersion"));
}

std::string ControllerUidOf(const json& object) {
  const json& owners = MemberAt(MemberAt(object, "metadata"), "ownerReferences");
  if (!owners.is_array()) return {};
  for (const json& owner : owners) {
    const json& controller = MemberAt(owner, "controller");
    if (controller.is_boolean() && controller.get<bool>()) return OrEmpty(StringAt(owner, "uid"));
  }
  return {};
}

std::string LabelOf(const json& object, std::string_view label) {
  return OrEmpty(StringAt(MemberAt(MemberAt(object, "metadata"), "labels"), label));
}

}  // namespace trainyard::cluster
