#include "operator/local/local_cluster.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "operator/local/kubelet.h"
#include "operator/local/object_rules.h"
#include "operator/local/pod_directory.h"
#include "operator/local/scheduler.h"
#include "operator/local/simulated_node.h"
#include "operator/local/store.h"
#include "trainer/contract/contract.h"

namespace trainyard::local {

using cluster::Kind;
using cluster::ObjectKey;
using nlohmann::json;

class LocalCluster::Impl {
 public:
  explicit Impl(LocalOptions given) : options(std::move(given)) {
    store = std::make_shared<Store>(clock, options.watch_window, [this] { Poke(); });
  }
  ~Impl() {
    // Each of the two wakes the other through the store, so both stand until both have stopped.
    if (scheduler) scheduler->Stop();
    if (kubelet) kubelet->Shutdown(Milliseconds(0));
    store->Close();
  }
  void Poke() {
    if (kubelet) kubelet->Poke();
    if (scheduler) scheduler->Poke();
  }
  Status EditNode(const std::string& name, const std::function<void(json&)>& edit) {
    return store->Edit(Kind::kNode, {"", name}, "", edit);
  }
  // Pods bound to `node`.
  std::vector<cluster::Object> PodsOn(const std::string& node) const {
    std::vector<cluster::Object> pods;
    const Result<cluster::ObjectList> all = store->List(Kind::kPod, {});
    if (!all) return pods;
    std::copy_if(all->items.begin(), all->items.end(), std::back_inserter(pods),
                 [&](const cluster::Object& pod) { return TextAt(*pod, "/spec/nodeName"_json_pointer) == node; });
    return pods;
  }

  const LocalOptions options;
  const RealClock clock;
  std::shared_ptr<Store> store;
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<Kubelet> kubelet;  // after scheduler: its thread must end first
};

Result<std::unique_ptr<LocalCluster>> LocalCluster::Start(LocalOptions options) {
  namespace fs = std::filesystem;
  if (options.nodes < 0 || options.gpus_per_node < 0) {
    return Fail(ErrorCode::kInvalidArgument, "local cluster: nodes and GPUs per node must not be negative");
  }
  std::error_code error;
  options.state_dir = fs::absolute(options.state_dir, error);
  fs::create_directories(options.state_dir / "pods", error);
  if (error) {
    return Fail(ErrorCode::kPermissionDenied,
                "local cluster: cannot make " + options.state_dir.string() + ": " + error.message());
  }
  if (options.program_dir.empty()) options.program_dir = fs::read_symlink("/proc/self/exe", error).parent_path();
  if (options.gpu_memory_mib == 0) {
    options.gpu_memory_mib = MachineMemoryMib() / std::max<int64_t>(1, options.nodes * options.gpus_per_node);
  }
  auto impl = std::make_unique<Impl>(options);
  auto kubelet = Kubelet::Start(impl->store, impl->clock, {options.state_dir, options.program_dir, options.volumes});
  if (!kubelet) return Fail(kubelet.error().Wrap("local cluster"));
  impl->kubelet = *std::move(kubelet);
  impl->scheduler = std::make_unique<Scheduler>(impl->store, impl->clock);
  std::unique_ptr<LocalCluster> cluster(new LocalCluster(std::move(impl)));
  for (int i = 0; i < options.nodes; ++i) {
    const Status added =
        cluster->AddNode({"local-" + std::to_string(i), options.gpus_per_node, options.gpu_memory_mib, {}});
    if (!added) return Fail(added.error());
  }
  return cluster;
}

LocalCluster::LocalCluster(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LocalCluster::~LocalCluster() = default;

Result<cluster::ObjectList> LocalCluster::List(Kind kind, const cluster::ListOptions& options) {
  return impl_->store->List(kind, options);
}
Result<json> LocalCluster::Get(Kind kind, const ObjectKey& key) { return impl_->store->Get(kind, key); }
Result<json> LocalCluster::Create(Kind kind, const json& object) { return impl_->store->Create(kind, object); }
Result<json> LocalCluster::Replace(Kind kind, const json& object) { return impl_->store->Replace(kind, object); }
Result<json> LocalCluster::ReplaceStatus(Kind kind, const json& object) {
  return impl_->store->ReplaceStatus(kind, object);
}
Result<json> LocalCluster::Patch(Kind kind, const ObjectKey& key, cluster::PatchType type, const json& patch,
                                 bool status) {
  return impl_->store->Patch(kind, key, type, patch, status);
}
Status LocalCluster::Delete(Kind kind, const ObjectKey& key, const cluster::DeleteOptions& options) {
  return impl_->store->Delete(kind, key, options);
}
Status LocalCluster::DeleteCollection(Kind kind, const cluster::ListOptions& options,
                                      std::optional<int64_t> grace_seconds) {
  return impl_->store->DeleteCollection(kind, options, grace_seconds);
}
Result<std::unique_ptr<cluster::Watch>> LocalCluster::Watch(Kind kind, const cluster::WatchOptions& options) {
  return impl_->store->Watch(kind, options);
}

Status LocalCluster::AddNode(const NodeOptions& options) {
  Result<json> created = impl_->store->Create(Kind::kNode, MakeNode(options, impl_->clock.Now()));
  if (!created) return Fail(created.error());
  impl_->kubelet->ReviveNode(options.name);
  return {};
}

Status LocalCluster::RemoveNode(const std::string& name) {
  if (Status status = impl_->store->Delete(Kind::kNode, {"", name}, {}); !status) return status;
  impl_->kubelet->KillNode(name);
  for (const cluster::Object& pod : impl_->PodsOn(name)) {
    const Status status = impl_->store->Delete(Kind::kPod, cluster::KeyOf(*pod), {cluster::UidOf(*pod), "", 0});
    if (!status && status.error().code != ErrorCode::kNotFound) return status;
  }
  return {};
}

Status LocalCluster::Cordon(const std::string& name, bool unschedulable) {
  return impl_->EditNode(name, [&](json& node) {
    if (unschedulable) {
      node["spec"]["unschedulable"] = true;
    } else {
      node["spec"].erase("unschedulable");
    }
  });
}

Status LocalCluster::KillNode(const std::string& name) {
  if (Result<json> node = impl_->store->Get(Kind::kNode, {"", name}); !node) return Fail(node.error());
  impl_->kubelet->KillNode(name);
  const TimePoint now = impl_->clock.Now();
  if (Status status = impl_->EditNode(name, [&](json& node) { SetNodeReady(node, false, now); }); !status)
    return status;
  for (const cluster::Object& pod : impl_->PodsOn(name)) {
    const Status status = impl_->store->Edit(Kind::kPod, cluster::KeyOf(*pod), cluster::UidOf(*pod), [&](json& object) {
      SetCondition(object, "Ready", "False", "NodeStatusUnknown", "", now);
    });
    if (!status && status.error().code != ErrorCode::kNotFound) return status;
  }
  return {};
}

Status LocalCluster::ReviveNode(const std::string& name) {
  if (Result<json> node = impl_->store->Get(Kind::kNode, {"", name}); !node) return Fail(node.error());
  impl_->kubelet->ReviveNode(name);
  return impl_->EditNode(name, [&](json& node) { SetNodeReady(node, true, impl_->clock.Now()); });
}

std::filesystem::path LocalCluster::PodDirectory(const std::string& pod_name) const {
  return local::PodDirectory(impl_->options.state_dir, pod_name).root();
}

std::filesystem::path LocalCluster::PodLog(const std::string& pod_name) const {
  return local::PodDirectory(impl_->options.state_dir, pod_name).log();
}

void LocalCluster::Shutdown(Milliseconds grace) { impl_->kubelet->Shutdown(grace); }

Result<json> LocalProgressSource::Read(const api::PodSnapshot& rank0_pod) {
  const std::filesystem::path path = cluster_.PodDirectory(rank0_pod.name) / "run" / contract::kStatusFile;
  std::ifstream file(path, std::ios::binary);
  if (!file) return Fail(ErrorCode::kNotFound, path.string() + " is not there yet");
  json status = json::parse(file, nullptr, false);
  if (!status.is_object()) return Fail(ErrorCode::kInvalidArgument, path.string() + " holds no JSON object");
  return status;
}

}  // namespace trainyard::local
