#include "operator/cli/checkpoints/pod.h"

#include <algorithm>

#include "operator/cli/checkpoints/in_cluster.h"
#include "operator/cli/volume_path.h"
#include "operator/lifecycle/pod_spec.h"
#include "operator/lifecycle/pod_template.h"
#include "trainer/contract/contract.h"

namespace trainyard::cli {
namespace {

using nlohmann::json;

// Nobody is left to end it when the command that made it was killed; what it does may take hours.
constexpr int64_t kLongestSeconds = 86'400;

tl::unexpected<Error> Cannot(const api::TrainingJob& job, const std::string& why) {
  return Fail(ErrorCode::kFailedPrecondition, "job " + job.meta.ns + "/" + job.meta.name + " " + why);
}

// The entry of that name in a list of named things; null without one.
json Named(const json& list, const std::string& name) {
  const auto found = std::find_if(list.begin(), list.end(), [&](const json& one) { return one["name"] == name; });
  return found == list.end() ? json() : *found;
}

// The volumes that a command needs, each once.
struct Mounts {
  explicit Mounts(const api::TrainingJob& of) : job(of) {}

  // Where the volume is in the pod.
  Result<std::string> Path(const std::string& name, const char* what) {
    const json volume = Named(lifecycle::Volumes(job), name), mount = Named(lifecycle::VolumeMounts(job), name);
    if (volume.is_null() || mount.is_null()) return Cannot(job, "has no volume " + name);
    if (volume.contains("emptyDir")) {
      return Cannot(job,
                    std::string("keeps ") + what + " in an emptyDir, which each pod has for itself: nothing stays");
    }
    if (Named(volumes, name).is_null()) {
      volumes.push_back(volume);
      mounts.push_back(mount);
    }
    return mount["mountPath"].get<std::string>();
  }

  const api::TrainingJob& job;
  json volumes = json::array(), mounts = json::array();
};

// A word of the command as the pod's program gets it.
Result<std::string> InPod(const api::TrainingJob& job, Mounts& mounts, const std::string& word) {
  if (word.starts_with(kOnVolume)) {
    const Result<api::VolumeDirectory> place = ParseVolumePath(word.substr(kOnVolume.size()));
    if (!place) return Fail(place.error());
    Result<std::string> root = mounts.Path(place->volume, "what is asked for");
    if (root) *root += "/" + place->path;
    return root;
  }
  if (!word.starts_with(kDirectory)) return word;
  if (!job.spec.checkpoint) return Cannot(job, "has no spec.checkpoint");
  const api::Checkpoint& checkpoint = *job.spec.checkpoint;
  Result<std::string> root = mounts.Path(checkpoint.volume, "its checkpoints");
  if (root) {
    *root += "/" + (checkpoint.path.empty() ? job.meta.name : checkpoint.path) +
             word.substr(std::string_view(kDirectory).size());
  }
  return root;
}

json Affinity(const std::string& node) {
  const json term = {
      {"matchFields", json::array({{{"key", "metadata.name"}, {"operator", "In"}, {"values", json::array({node})}}})}};
  return {{"nodeAffinity",
           {{"requiredDuringSchedulingIgnoredDuringExecution", {{"nodeSelectorTerms", json::array({term})}}}}}};
}

std::string Text(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

json FirstOf(const json& pod, const char* list) {
  const auto status = pod.find("status");
  if (status == pod.end() || !status->is_object()) return json::object();
  const auto found = status->find(list);
  return found != status->end() && found->is_array() && !found->empty() ? found->front() : json::object();
}

// The container's state "waiting"; an empty object when it has none.
json Waiting(const json& pod) {
  const json state = FirstOf(pod, "containerStatuses").value("state", json::object());
  return state.value("waiting", json::object());
}

}  // namespace

Result<json> CheckpointsPod(const api::TrainingJob& job, const PodRequest& request) {
  const std::string image = !request.image.empty() ? request.image
                            : job.status.trainer   ? job.status.trainer->image
                                                   : "";
  if (image.empty()) return Cannot(job, "has not run yet, so its image is not known: name one with --image");
  Mounts mounts(job);
  json command = {"trainyard", "checkpoints"};
  for (const std::string& word : request.command) {
    Result<std::string> there = InPod(job, mounts, word);
    if (!there) return Fail(there.error());
    command.push_back(*std::move(there));
  }
  json spec = {{"restartPolicy", "Never"},
               {"activeDeadlineSeconds", kLongestSeconds},
               {"automountServiceAccountToken", false},
               {"enableServiceLinks", false},
               {"terminationGracePeriodSeconds", 5},
               {"tolerations", json::array({{{"key", api::kGpuResource}, {"operator", "Exists"}}})},
               {"securityContext", lifecycle::PodSecurity(job)},
               {"volumes", mounts.volumes},
               {"containers", json::array({{{"name", "checkpoints"},
                                            {"image", image},
                                            {"command", command},
                                            {"volumeMounts", mounts.mounts},
                                            {"resources", {{"requests", {{"cpu", "100m"}, {"memory", "256Mi"}}}}},
                                            {"securityContext", lifecycle::ContainerSecurity(job)}}})}};
  const json owner = {
      {"apiVersion", api::kApiVersion}, {"kind", api::kKind}, {"name", job.meta.name}, {"uid", job.meta.uid}};
  json pod = {{"apiVersion", "v1"},
              {"kind", "Pod"},
              {"metadata",
               {{"name", request.name},
                {"namespace", job.meta.ns},
                {"labels", {{std::string(contract::kLabelRole), kRole}}},
                {"ownerReferences", json::array({owner})}}},
              {"spec", std::move(spec)}};
  lifecycle::PlaceLike(job.spec.pod_template, pod);
  if (!request.node.empty()) pod["spec"]["affinity"] = Affinity(request.node);
  return pod;
}

std::string WhyItCannotRun(const json& pod) {
  const json waiting = Waiting(pod);
  for (const char* reason : {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull",
                             "CreateContainerConfigError", "CreateContainerError"}) {
    if (Text(waiting, "reason") == reason) {
      return std::string("its pod cannot run: ") + reason + ": " + Text(waiting, "message");
    }
  }
  return "";
}

std::string WhyItWaits(const json& pod) {
  const json waiting = Waiting(pod);
  if (!Text(waiting, "reason").empty()) return Text(waiting, "reason") + " " + Text(waiting, "message");
  const json conditions = pod.value("status", json::object()).value("conditions", json::array());
  for (const json& condition : conditions) {
    if (Text(condition, "status") == "False" && !Text(condition, "message").empty()) return Text(condition, "message");
  }
  return "no node has taken it";
}

}  // namespace trainyard::cli
