#include "operator/lifecycle/pod_spec.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>

#include "operator/api/names.h"
#include "operator/lifecycle/context.h"
#include "operator/lifecycle/resolved_job.h"
#include "trainer/contract/contract.h"

namespace trainyard::lifecycle {
namespace {

using nlohmann::json;

constexpr int64_t kUserId = 65532;
constexpr double kBaseGraceSeconds = 60;
constexpr double kUnknownStepsSeconds = 540;
// Forward without backward, of a micro-batch that trains: a third of its time, rounded up.
constexpr double kEvaluationShare = 0.5;
constexpr double kSlowDiskBytesPerSecond = 100e6;
// The launcher's ranks are killed this long before the pod, so that it can still explain the end.
constexpr int64_t kLauncherMarginSeconds = 5;

json Plain(const std::string& name, const std::string& value) { return {{"name", name}, {"value", value}}; }

json FromField(const std::string& name, const std::string& path) {
  return {{"name", name}, {"valueFrom", {{"fieldRef", {{"apiVersion", "v1"}, {"fieldPath", path}}}}}};
}

std::string MountPath(const std::string& volume) { return std::string(contract::kDefaultVolumeRoot) + "/" + volume; }

// Names of our volumes; validation refuses users' volumes that are called so (api::kReservedVolumePrefix).
constexpr const char* kJobVolume = "trainyard-job";
constexpr const char* kShmVolume = "trainyard-shm";

// A stop may come while a checkpoint is being written, and writes another one.
double SaveSeconds(const api::TrainingJob& job) {
  double bytes = job.status.plan ? static_cast<double>(job.status.plan->checkpoint_bytes) : 0;
  double nodes = job.status.placement ? static_cast<double>(job.status.placement->nodes.size()) : 1;
  return std::floor(2 * bytes / std::max(nodes, 1.0) / kSlowDiskBytesPerSecond);
}

// A stop is agreed in the step after the one that it interrupts, and that may have to wait for an evaluation.
double StepsSeconds(const api::TrainingJob& job, double step) {
  double evaluation = 0;
  if (job.spec.data && !job.spec.data->validation.empty() && job.status.plan) {
    auto micro_batches = static_cast<double>(std::max<int64_t>(1, job.status.plan->accumulation));
    double batches = static_cast<double>(job.spec.training.evaluation.batches) / micro_batches;
    evaluation = kEvaluationShare * step * batches;
  }
  return std::ceil(2 * step + evaluation);
}

// As the last step that was measured would be on the GPUs of this attempt; nullopt: none was.
std::optional<double> MeasuredStep(const api::TrainingJob& job) {
  const auto& progress = job.status.progress;
  if (!progress || !progress->step_seconds || !(*progress->step_seconds > 0)) return std::nullopt;
  // Fewer GPUs take longer for the same batch; more are not trusted to be faster.
  int64_t gpus = job.status.placement ? TotalGpus(*job.status.placement) : 0;
  if (!progress->step_gpus || gpus <= 0) return progress->step_seconds;
  return *progress->step_seconds * std::max(1.0, static_cast<double>(*progress->step_gpus) / static_cast<double>(gpus));
}

double TrainSeconds(const api::TrainingJob& job) {
  if (auto step = MeasuredStep(job)) return StepsSeconds(job, *step);
  double planned = job.status.plan ? job.status.plan->step_seconds.value_or(0) : 0;
  return std::max(kUnknownStepsSeconds, StepsSeconds(job, planned));
}

int64_t Bounded(double seconds, const api::TrainingJob& job) {
  auto longest = static_cast<double>(std::max<int64_t>(1, job.spec.recovery.max_grace_seconds));
  return static_cast<int64_t>(std::clamp(seconds, 1.0, longest));
}

}  // namespace

int64_t GraceSeconds(const api::TrainingJob& job) {
  return Bounded(kBaseGraceSeconds + SaveSeconds(job) + TrainSeconds(job), job);
}

int64_t LostGraceSeconds(const api::TrainingJob& job) { return Bounded(kBaseGraceSeconds + SaveSeconds(job), job); }

json Environment(const api::TrainingJob& job, int64_t node_rank) {
  const api::PlacementStatus& placement = *job.status.placement;
  auto nodes = static_cast<int64_t>(placement.nodes.size());
  int64_t per_node = placement.nodes[static_cast<size_t>(node_rank)].gpus;
  std::string master = api::ServiceName(job) + "." + job.meta.ns + ".svc";
  std::string port = std::to_string(contract::kDefaultMasterPort);
  int64_t launcher_grace = std::max<int64_t>(1, GraceSeconds(job) - kLauncherMarginSeconds);
  json env = {
      Plain(contract::kEnvMasterAddr, master),
      Plain(contract::kEnvMasterPort, port),
      Plain(contract::kEnvNnodes, std::to_string(nodes)),
      Plain(contract::kEnvNodeRank, std::to_string(node_rank)),
      Plain(contract::kEnvNprocPerNode, std::to_string(per_node)),
      Plain(contract::kEnvWorldSize, std::to_string(nodes * per_node)),
      // The same for torchrun.
      Plain("PET_MASTER_ADDR", master),
      Plain("PET_MASTER_PORT", port),
      Plain("PET_NNODES", std::to_string(nodes)),
      Plain("PET_NODE_RANK", std::to_string(node_rank)),
      Plain("PET_NPROC_PER_NODE", std::to_string(per_node)),
      Plain(contract::kEnvJobUid, job.meta.uid),
      Plain(contract::kEnvAttempt, std::to_string(job.status.attempt)),
      Plain(contract::kEnvJobFile, std::string(contract::kDefaultJobFile)),
      Plain(contract::kEnvVolumeRoot, std::string(contract::kDefaultVolumeRoot)),
      Plain(contract::kEnvRunDir, std::string(contract::kDefaultRunDir)),
      Plain(contract::kEnvStatusPort, std::to_string(contract::kDefaultStatusPort)),
      Plain(contract::kEnvTerminationLog, std::string(contract::kDefaultTerminationLog)),
      Plain(contract::kEnvGraceSeconds, std::to_string(launcher_grace)),
      FromField(contract::kEnvPodIp, "status.podIP"),
  };
  for (const api::EnvVar& variable : job.spec.env) {
    bool ours = std::any_of(env.begin(), env.end(), [&](const json& e) { return e["name"] == variable.name; });
    if (!ours) env.push_back(Plain(variable.name, variable.value));
  }
  return env;
}

void AddDefaults(const api::TrainingJob& job, json& env) {
  std::map<std::string, std::string> defaults = job.status.placement->environment;
  const std::string product = job.status.plan ? job.status.plan->product : "";
  auto device = ResolveDevice(job.spec.training.device, product);
  if (device && *device == api::DeviceKind::kCuda) {
    // Where the flight recorder leaves its dumps; the second name is that of PyTorch 2.9 and newer.
    const std::string dump = std::string(contract::kDefaultRunDir) + "/nccl_trace_rank_";
    defaults.emplace("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", dump);
    defaults.emplace("TORCH_FR_DUMP_TEMP_FILE", dump);
  }
  for (const auto& [name, value] : defaults) {
    const bool set = std::any_of(env.begin(), env.end(), [&](const json& e) { return e["name"] == name; });
    if (!set) env.push_back(Plain(name, value));
  }
}

json Volumes(const api::TrainingJob& job) {
  std::string annotation = "metadata.annotations['" + std::string(contract::kAnnotationJob) + "']";
  std::string job_file(contract::kDefaultJobFile);
  json volumes = {
      {{"name", kJobVolume},
       {"downwardAPI",
        {{"items", json::array({{{"path", job_file.substr(job_file.rfind('/') + 1)},
                                 {"fieldRef", {{"apiVersion", "v1"}, {"fieldPath", annotation}}}}})}}}},
      {{"name", kRunVolume}, {"emptyDir", json::object()}},
      {{"name", kTmpVolume}, {"emptyDir", json::object()}},
      // Without a size: as large as the memory that the pod may use, of which what lies in it is a part. NCCL and the
      // workers of data loaders fail with the 64 MiB that a container has otherwise.
      {{"name", kShmVolume}, {"emptyDir", {{"medium", "Memory"}}}},
  };
  for (const api::Volume& volume : job.spec.volumes) {
    json entry = {{"name", volume.name}};
    if (!volume.claim_name.empty()) {
      entry["persistentVolumeClaim"] = {{"claimName", volume.claim_name}};
    } else if (!volume.host_path.empty()) {
      entry["hostPath"] = {{"path", volume.host_path}};
    } else {
      entry["emptyDir"] = json::object();
    }
    volumes.push_back(std::move(entry));
  }
  return volumes;
}

json VolumeMounts(const api::TrainingJob& job) {
  std::string job_file(contract::kDefaultJobFile);
  json mounts = {
      {{"name", kJobVolume}, {"mountPath", job_file.substr(0, job_file.rfind('/'))}, {"readOnly", true}},
      {{"name", kRunVolume}, {"mountPath", std::string(contract::kDefaultRunDir)}},
      {{"name", kTmpVolume}, {"mountPath", "/tmp"}},
      {{"name", kShmVolume}, {"mountPath", "/dev/shm"}},
  };
  for (const api::Volume& volume : job.spec.volumes) {
    mounts.push_back({{"name", volume.name}, {"mountPath", MountPath(volume.name)}});
  }
  return mounts;
}

json PodSecurity(const api::TrainingJob& job) {
  json security = {{"seccompProfile", {{"type", "RuntimeDefault"}}}};
  if (job.spec.UsesBundledTrainer()) {
    security["runAsNonRoot"] = true;
    security["runAsUser"] = kUserId;
    security["runAsGroup"] = kUserId;
    security["fsGroup"] = kUserId;
    // Without this every start walks through all checkpoints.
    security["fsGroupChangePolicy"] = "OnRootMismatch";
  }
  return security;
}

json ContainerSecurity(const api::TrainingJob& job) {
  json security = {{"allowPrivilegeEscalation", false}};
  if (job.spec.UsesBundledTrainer()) {
    security["readOnlyRootFilesystem"] = true;
    security["capabilities"] = {{"drop", json::array({"ALL"})}};
  }
  return security;
}

}  // namespace trainyard::lifecycle
