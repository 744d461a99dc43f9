#include "operator/lifecycle/pod_builder.h"

#include <algorithm>
#include <string>

#include "operator/api/names.h"
#include "operator/base/ids.h"
#include "operator/lifecycle/path_user.h"
#include "operator/lifecycle/pod_spec.h"
#include "operator/lifecycle/pod_template.h"
#include "operator/lifecycle/resolved_job.h"
#include "trainer/contract/contract.h"

namespace trainyard::lifecycle {
namespace {

using nlohmann::json;

json Labels(const api::TrainingJob& job) {
  return {{std::string(contract::kLabelJobName), job.meta.name},
          {std::string(contract::kLabelJobUid), job.meta.uid},
          {std::string(contract::kLabelRole), "trainer"}};
}

// `blocks`: whether a deletion of the job with --cascade=foreground waits until Kubernetes has deleted the object.
json OwnerReferences(const api::TrainingJob& job, bool blocks = true) {
  return json::array({{{"apiVersion", api::kApiVersion},
                       {"kind", api::kKind},
                       {"name", job.meta.name},
                       {"uid", job.meta.uid},
                       {"controller", true},
                       {"blockOwnerDeletion", blocks}}});
}

// An emptyDir is on the disk that the kubelet gives pods, and counts as theirs.
bool OffloadsToEmptyDir(const api::Spec& spec) {
  return std::any_of(spec.volumes.begin(), spec.volumes.end(), [&](const api::Volume& volume) {
    return volume.empty_dir && volume.name == spec.parallelism.offload_volume;
  });
}

// What container `trainer` asks for besides GPUs and what the user adds.
std::map<std::string, int64_t> OwnRequests(int64_t gpus, const api::TrainingJob& job, const api::PlanStatus& plan,
                                           const api::TrainerStatus& trainer) {
  int64_t memory = trainer.memory_bytes_per_gpu;
  int64_t disk = 0;
  if (job.spec.UsesBundledTrainer() && plan.gpus > 0) {
    memory += plan.checkpoint_bytes / plan.gpus + plan.host_bytes_per_gpu;
    auto device = ResolveDevice(job.spec.training.device, plan.product);
    if (device && *device == api::DeviceKind::kCpu) memory += plan.bytes_per_gpu;
    if (OffloadsToEmptyDir(job.spec)) disk = plan.disk_bytes_per_gpu;
  }
  std::map<std::string, int64_t> requests = {{"cpu", gpus * trainer.cpu_milli_per_gpu}, {"memory", gpus * memory}};
  if (disk > 0) requests["ephemeral-storage"] = gpus * disk;
  return requests;
}

json Resources(const api::TrainingJob& job, int64_t gpus, const api::TrainerStatus& trainer) {
  std::map<std::string, int64_t> ours = OwnRequests(gpus, job, *job.status.plan, trainer);
  ours[api::kGpuResource] = gpus;
  for (const auto& [name, amount] : job.status.placement->resources) ours.emplace(name, amount);
  return MergeResources(job.spec.pod_template, ours);
}

// Libraries that count the machine's cores would start as many threads in each process, whatever its pod may use.
void SetThreads(json& env, const api::TrainerStatus& trainer) {
  constexpr const char* kThreads = "OMP_NUM_THREADS";
  const bool given = std::any_of(env.begin(), env.end(), [](const json& e) { return e["name"] == kThreads; });
  if (given) return;
  env.push_back(
      {{"name", kThreads}, {"value", std::to_string(std::max<int64_t>(1, trainer.cpu_milli_per_gpu / 1000))}});
}

json Container(const api::TrainingJob& job, int64_t node_rank, int64_t gpus, const api::TrainerStatus& trainer,
               const Options& options) {
  json container = {{"name", std::string(contract::kContainerName)},
                    {"env", Environment(job, node_rank)},
                    {"ports", json::array({{{"name", "master"}, {"containerPort", contract::kDefaultMasterPort}},
                                           {{"name", "status"}, {"containerPort", contract::kDefaultStatusPort}}})},
                    {"resources", Resources(job, gpus, trainer)},
                    {"volumeMounts", VolumeMounts(job)},
                    {"securityContext", ContainerSecurity(job)},
                    {"terminationMessagePath", std::string(contract::kDefaultTerminationLog)},
                    {"terminationMessagePolicy", "FallbackToLogsOnError"}};
  container["image"] = trainer.image;
  if (job.spec.UsesBundledTrainer()) {
    container["command"] = options.launch_command;
  } else if (!job.spec.command.empty()) {
    container["command"] = job.spec.command;
  }
  if (!job.spec.args.empty()) container["args"] = job.spec.args;
  return container;
}

// Small: it reads names and removes files.
json RemovalContainer(const api::TrainingJob& job, const json& command, const std::string& image) {
  json mounts = json::array();
  for (const json& mount : VolumeMounts(job)) {
    if (mount["name"] == job.spec.checkpoint->volume || mount["name"] == kRunVolume || mount["name"] == kTmpVolume) {
      mounts.push_back(mount);
    }
  }
  const auto plain = [](const char* name, std::string_view value) {
    return json{{"name", name}, {"value", std::string(value)}};
  };
  return {{"name", std::string(contract::kContainerName)},
          {"image", image},
          {"command", command},
          {"env", json::array({plain(contract::kEnvJobUid, job.meta.uid),
                               plain(contract::kEnvAttempt, std::to_string(job.status.attempt)),
                               plain(contract::kEnvVolumeRoot, contract::kDefaultVolumeRoot),
                               plain(contract::kEnvRunDir, contract::kDefaultRunDir),
                               plain(contract::kEnvTerminationLog, contract::kDefaultTerminationLog)})},
          {"resources", {{"requests", {{"cpu", "100m"}, {"memory", "256Mi"}}}}},
          {"volumeMounts", mounts},
          {"securityContext", ContainerSecurity(job)},
          {"terminationMessagePath", std::string(contract::kDefaultTerminationLog)},
          {"terminationMessagePolicy", "FallbackToLogsOnError"}};
}

json RemovalVolumes(const api::TrainingJob& job) {
  json volumes = json::array();
  for (const json& volume : Volumes(job)) {
    if (volume["name"] == job.spec.checkpoint->volume || volume["name"] == kRunVolume || volume["name"] == kTmpVolume) {
      volumes.push_back(volume);
    }
  }
  return volumes;
}

}  // namespace

api::TrainerStatus NewTrainer(const api::TrainingJob& job, const Options& options) {
  return {.image = job.spec.image.empty() ? options.trainer_image : job.spec.image,
          .cpu_milli_per_gpu = options.cpu_milli_per_gpu,
          .memory_bytes_per_gpu = options.memory_bytes_per_gpu,
          .generation = job.meta.generation};
}

std::map<std::string, int64_t> PodResources(int64_t gpus, const api::TrainingJob& job, const api::PlanStatus& plan,
                                            const api::TrainerStatus& trainer) {
  return RequestsWithTemplate(job.spec.pod_template, OwnRequests(gpus, job, plan, trainer));
}

// The path of the domain that a rank is in; empty: none is known.
std::string DomainOf(const api::PlacementStatus& placement, int64_t node_rank) {
  for (const api::PlacedDomain& domain : placement.domains) {
    if (node_rank < domain.nodes) return domain.path;
    node_rank -= domain.nodes;
  }
  return "";
}

json BuildPod(const api::TrainingJob& job, int64_t node_rank, const Options& options) {
  const api::PlacedNode& placed = job.status.placement->nodes[static_cast<size_t>(node_rank)];
  json labels = Labels(job);
  labels[std::string(contract::kLabelAttempt)] = std::to_string(job.status.attempt);
  labels[std::string(contract::kLabelNodeRank)] = std::to_string(node_rank);
  // Names of volumes and data come from the user: what is not UTF-8 must not stop the operator.
  std::string resolved = ResolvedJob(job, *job.status.plan).dump(-1, ' ', false, json::error_handler_t::replace);
  json annotations = {{std::string(contract::kAnnotationJob), resolved}};
  const int64_t first = node_rank * placed.gpus;
  annotations[std::string(contract::kAnnotationRanks)] =
      std::to_string(first) + (placed.gpus > 1 ? "-" + std::to_string(first + placed.gpus - 1) : "");
  if (std::string domain = DomainOf(*job.status.placement, node_rank); !domain.empty()) {
    annotations[std::string(contract::kAnnotationDomain)] = domain;
  }
  if (const auto& checkpoint = job.spec.checkpoint) {
    const std::string key = PathKey(job.spec, checkpoint->volume, checkpoint->path);
    if (!key.empty()) annotations[kAnnotationCheckpoints] = key;
  }
  const api::TrainerStatus trainer = job.status.trainer ? *job.status.trainer : NewTrainer(job, options);
  json pod = {
      {"apiVersion", "v1"},
      {"kind", "Pod"},
      {"metadata",
       {{"name", api::PodName(job, job.status.attempt, node_rank)},
        {"namespace", job.meta.ns},
        {"labels", labels},
        {"annotations", annotations},
        {"ownerReferences", OwnerReferences(job)}}},
      {"spec",
       {{"restartPolicy", "Never"},
        {"schedulingGates", json::array({{{"name", std::string(contract::kGangGate)}}})},
        {"tolerations", json::array({{{"key", api::kGpuResource}, {"operator", "Exists"}, {"effect", "NoSchedule"}}})},
        {"automountServiceAccountToken", false},
        {"enableServiceLinks", false},
        {"terminationGracePeriodSeconds", GraceSeconds(job)},
        {"securityContext", PodSecurity(job)},
        {"containers", json::array({Container(job, node_rank, placed.gpus, trainer, options)})},
        {"volumes", Volumes(job)}}}};
  if (!job.spec.priority_class_name.empty()) pod["spec"]["priorityClassName"] = job.spec.priority_class_name;
  MergeTemplate(job.spec.pod_template, placed.node, pod);
  json& env = pod["spec"]["containers"][0]["env"];
  AddDefaults(job, env);
  if (options.threads_from_request) SetThreads(env, trainer);
  return pod;
}

std::string RemovalPodName(const api::TrainingJob& job) {
  return job.meta.name + "-" + ShortUid(job.meta.uid) + "-remove";
}

json BuildRemovalPod(const api::TrainingJob& job, const Options& options) {
  const api::Checkpoint& checkpoint = *job.spec.checkpoint;
  const api::TrainerStatus trainer = job.status.trainer ? *job.status.trainer : NewTrainer(job, options);
  json labels = Labels(job);
  labels[std::string(contract::kLabelAttempt)] = std::to_string(job.status.attempt);
  labels[std::string(contract::kLabelRole)] = "remove-checkpoints";
  json command = options.launch_command;
  for (const std::string& word : {std::string("--"), std::string("trainyard-trainer"),
                                  std::string("--remove-checkpoints"), checkpoint.volume, checkpoint.path}) {
    command.push_back(word);
  }
  json pod = {
      {"apiVersion", "v1"},
      {"kind", "Pod"},
      {"metadata",
       {{"name", RemovalPodName(job)},
        {"namespace", job.meta.ns},
        {"labels", labels},
        // Our finalizer keeps the job. Kubernetes would delete a pod that blocks, in a foreground deletion, at once.
        {"ownerReferences", OwnerReferences(job, /*blocks=*/false)}}},
      {"spec",
       {{"restartPolicy", "Never"},
        {"activeDeadlineSeconds", 600},
        {"terminationGracePeriodSeconds", 10},
        {"automountServiceAccountToken", false},
        {"enableServiceLinks", false},
        {"tolerations", json::array({{{"key", api::kGpuResource}, {"operator", "Exists"}, {"effect", "NoSchedule"}}})},
        {"securityContext", PodSecurity(job)},
        {"containers", json::array({RemovalContainer(job, command, trainer.image)})},
        {"volumes", RemovalVolumes(job)}}}};
  PlaceLike(job.spec.pod_template, pod);
  return pod;
}

json BuildService(const api::TrainingJob& job) {
  return {{"apiVersion", "v1"},
          {"kind", "Service"},
          {"metadata",
           {{"name", api::ServiceName(job)},
            {"namespace", job.meta.ns},
            {"labels", Labels(job)},
            {"ownerReferences", OwnerReferences(job)}}},
          {"spec",
           {{"clusterIP", "None"},
            {"publishNotReadyAddresses", true},
            // Rank 0 alone: every other endpoint would be written for nobody.
            {"selector",
             {{std::string(contract::kLabelJobUid), job.meta.uid}, {std::string(contract::kLabelNodeRank), "0"}}},
            {"ports", json::array({{{"name", "master"}, {"port", contract::kDefaultMasterPort}},
                                   {{"name", "status"}, {"port", contract::kDefaultStatusPort}}})}}}};
}

}  // namespace trainyard::lifecycle
