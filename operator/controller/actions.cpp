#include "operator/controller/actions.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>

#include "trainer/contract/contract.h"

namespace trainyard::controller {

using cluster::Kind;
using cluster::ObjectKey;
using lifecycle::Action;
using nlohmann::json;

namespace {

// Not there, or another object by now: there is nothing left to do.
Status IgnoreGone(const Status& status) {
  const bool gone =
      !status && (status.error().code == ErrorCode::kNotFound || status.error().code == ErrorCode::kConflict);
  return gone ? Status() : status;
}

// The owner reference of the controller, else the first; null where there is none.
json OwnerOf(const json& object) {
  const json owners = object.value("/metadata/ownerReferences"_json_pointer, json::array());
  if (!owners.is_array()) return nullptr;
  json found;
  for (const json& owner : owners) {
    if (!owner.is_object()) continue;
    const bool controls = owner.contains("controller") && owner["controller"] == true;
    if (found.is_null() || controls) found = owner;
    if (controls) break;
  }
  return found;
}

// Whose the object is that has the name of one of ours, and what its people and the job's can do about it. Nobody is
// told to delete what may be somebody's.
std::string NameIsTaken(const api::TrainingJob& job, Kind kind, const Action& action, const json& existing) {
  const std::string what = std::string(cluster::InfoOf(kind).kind) + " " + job.meta.ns + "/" + action.name;
  const json owner = OwnerOf(existing);
  const auto text = [&owner](const char* key) {
    return owner.is_object() && owner.contains(key) && owner[key].is_string() ? owner[key].get<std::string>() : "";
  };
  const std::string whose = text("kind") + " " + text("name");
  if (text("uid") == job.meta.uid) {
    return what + " is there already, of another attempt of this job than attempt " + std::to_string(action.attempt);
  }
  if (text("kind") == api::kKind && text("name") == job.meta.name) {
    return what + " is still that of an earlier " + whose + " (UID " + text("uid") +
           "), and goes when that one is gone";
  }
  return "the job needs the name of " + what + ", which " +
         (owner.is_null() ? "is another's (it has no owner reference)" : "belongs to " + whose) +
         "; rename the job or remove that " + std::string(cluster::InfoOf(kind).kind);
}

}  // namespace

Status ActionRunner::Run(const api::TrainingJob& job, const std::vector<Action>& actions) {
  for (size_t begin = 0; begin < actions.size();) {
    size_t end = begin + 1;
    while (end < actions.size() && actions[end].kind == actions[begin].kind) ++end;
    std::mutex mutex;  // guards failure
    std::optional<Error> failure;
    pool_.ForEach(end - begin, [&](size_t i) {
      const Status status = RunOne(job, actions[begin + i]);
      if (status) return true;
      std::lock_guard lock(mutex);
      if (!failure) failure = status.error();
      return false;
    });
    if (failure) return Fail(*failure);
    begin = end;
  }
  return {};
}

Status ActionRunner::RunOne(const api::TrainingJob& job, const Action& action) try {
  const ObjectKey key{job.meta.ns, action.name};
  const auto grace = action.grace_seconds >= 0 ? std::optional<int64_t>(action.grace_seconds) : std::nullopt;
  switch (action.kind) {
    case Action::Kind::kCreateService:
      return Create(job, Kind::kService, action);
    case Action::Kind::kCreatePod:
      return Create(job, Kind::kPod, action);
    case Action::Kind::kUngatePod:
      return Ungate(key, action.uid);
    case Action::Kind::kDeletePod:
      return IgnoreGone(cluster_.Delete(Kind::kPod, key, {action.uid, "", grace}));
    case Action::Kind::kDeleteAllPods: {
      const std::string selector = std::string(contract::kLabelJobUid) + "=" + job.meta.uid + "," +
                                   std::string(contract::kLabelAttempt) + "=" + std::to_string(action.attempt);
      return cluster_.DeleteCollection(Kind::kPod, {job.meta.ns, selector}, grace);
    }
    case Action::Kind::kDeleteService:
      return IgnoreGone(cluster_.Delete(Kind::kService, key, {action.uid, "", std::nullopt}));
    case Action::Kind::kAddFinalizer:
      return SetFinalizer(job, true);
    case Action::Kind::kRemoveFinalizer:
      return SetFinalizer(job, false);
  }
  return Fail(ErrorCode::kInternal, "unknown action");
} catch (const std::exception& exception) {  // on a thread of the pool nobody else could catch it
  return Fail(ErrorCode::kInternal, "action on " + action.name + ": exception: " + exception.what());
}

Status ActionRunner::Create(const api::TrainingJob& job, Kind kind, const Action& action) {
  const Result<json> created = cluster_.Create(kind, action.object);
  if (created) {
    on_created_(kind, *created);
    return {};
  }
  if (created.error().code != ErrorCode::kAlreadyExists) return Fail(created.error());
  const Result<json> existing = cluster_.Get(kind, {job.meta.ns, action.name});
  if (!existing) return Fail(existing.error());
  const bool same_attempt =
      kind != Kind::kPod || cluster::LabelOf(*existing, contract::kLabelAttempt) == std::to_string(action.attempt);
  if (cluster::ControllerUidOf(*existing) == job.meta.uid && same_attempt) {
    on_created_(kind, *existing);
    return {};
  }
  return Fail(ErrorCode::kAlreadyExists, NameIsTaken(job, kind, action, *existing));
}

Status ActionRunner::SetFinalizer(const api::TrainingJob& job, bool wanted) {
  std::vector<std::string> finalizers = job.meta.finalizers;
  std::erase(finalizers, lifecycle::kCheckpointFinalizer);
  if (wanted) finalizers.push_back(lifecycle::kCheckpointFinalizer);
  // The list is replaced as a whole: another controller's entry must not get lost, nor come back.
  const json patch = {
      {"metadata",
       {{"uid", job.meta.uid}, {"resourceVersion", job.meta.resource_version}, {"finalizers", finalizers}}}};
  const Result<json> patched =
      cluster_.Patch(Kind::kTrainingJob, {job.meta.ns, job.meta.name}, cluster::PatchType::kMerge, patch, false);
  if (patched || patched.error().code == ErrorCode::kNotFound) return {};
  return Fail(patched.error());
}

Status ActionRunner::Ungate(const ObjectKey& key, const std::string& uid) {
  // Nearly always ours is the only gate; where it is not, the pod says where ours stands.
  size_t place = 0;
  for (int tries = 0; tries < 3; ++tries) {
    const std::string path = "/spec/schedulingGates/" + std::to_string(place);
    const json patch = json::array({{{"op", "test"}, {"path", "/metadata/uid"}, {"value", uid}},
                                    {{"op", "test"}, {"path", path + "/name"}, {"value", contract::kGangGate}},
                                    {{"op", "remove"}, {"path", path}}});
    const Result<json> patched = cluster_.Patch(Kind::kPod, key, cluster::PatchType::kJson, patch, false);
    if (patched || patched.error().code == ErrorCode::kNotFound) return {};
    const bool other =
        patched.error().code == ErrorCode::kConflict || patched.error().code == ErrorCode::kInvalidArgument;
    if (!other) return Fail(patched.error());
    const Result<json> pod = cluster_.Get(Kind::kPod, key);
    if (!pod) return IgnoreGone(Fail(pod.error()));
    if (cluster::UidOf(*pod) != uid) return {};
    const json gates = pod->at("spec").value("schedulingGates", json::array());
    const auto ours = std::find_if(gates.begin(), gates.end(),
                                   [](const json& gate) { return gate.value("name", "") == contract::kGangGate; });
    if (ours == gates.end()) return {};
    place = static_cast<size_t>(ours - gates.begin());
  }
  return Fail(ErrorCode::kConflict, "pod " + cluster::ToString(key) + ": its scheduling gates keep changing");
}

}  // namespace trainyard::controller
