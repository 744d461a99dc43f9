#include "operator/manager.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

#include <spdlog/spdlog.h>

#include "operator/base/ids.h"
#include "operator/controller/yard_metrics.h"
#include "operator/http/server.h"
#include "operator/http/transport.h"
#include "operator/kube/config.h"
#include "operator/kube/pod_progress.h"
#include "operator/runtime/fenced_cluster.h"
#include "operator/runtime/metrics.h"

namespace trainyard {
namespace {

using runtime::Health;
namespace metric = runtime::metric;

// How long one wait for the caches lasts before it is told that they are still empty.
constexpr Milliseconds kSyncPatience{30'000};

std::string Identity() {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  return std::string(host.data()) + "_" + NewUid();
}

kube::KubeOptions LeaseOptions(const ManagerOptions& options) {
  kube::KubeOptions lease = options.kube;
  lease.request_timeout = options.lease_timeout;
  lease.lease_timeout = options.lease_timeout;
  return lease;
}

}  // namespace

class Manager::Impl {
 public:
  explicit Impl(ManagerOptions options) : options_(std::move(options)) {}

  Status Start() {
    Result<kube::Config> config = kube::LoadConfig(options_.kubeconfig);
    if (!config) return Fail(config.error());
    if (options_.election.ns.empty()) options_.election.ns = config->ns;
    if (options_.election.identity.empty()) options_.election.identity = Identity();
    options_.kube.on_request = [this](const kube::RequestInfo& request) { OnRequest(request); };
    if (Status status = Connect(*config); !status) return status;
    if (options_.leader_elect) {
      elector_.emplace(*lease_cluster_, options_.election, clock_, StableHash(options_.election.identity));
    }
    SetChecks();  // before anybody can ask: what is not checked yet is not ready
    if (Status status = Serve(); !status) return status;
    collector_ = metrics_.AddCollector([this](runtime::Scrape& scrape) { Collect(scrape); });
    progress_->SetListener([this](const std::string& job_uid) {
      std::lock_guard lock(mutex_);
      if (controller_ != nullptr) controller_->OnProgress(job_uid);
    });
    spdlog::info("trainyard-operator {}: API server {} ({})", options_.version, config->server, config->source);
    if (elector_) elector_->Start();
    terms_ = std::jthread([this](std::stop_token stop) { Run(std::move(stop)); });
    return {};
  }

  void Stop() {
    if (!terms_.joinable()) return;
    health_.ShutDown();
    terms_.request_stop();
    terms_.join();  // drains, flushes and gives the lease back
    progress_->Stop();
    cluster_->Stop();
    lease_cluster_->Stop();
    if (probe_server_) probe_server_->Stop();
    if (metrics_server_) metrics_server_->Stop();
    spdlog::info("trainyard-operator has ended");
  }

 private:
  Status Connect(const kube::Config& config) {
    auto cluster = kube::KubeCluster::Connect(config, options_.kube);
    if (!cluster) return Fail(cluster.error());
    cluster_ = *std::move(cluster);
    auto lease_cluster = kube::KubeCluster::Connect(config, LeaseOptions(options_));
    if (!lease_cluster) return Fail(lease_cluster.error());
    lease_cluster_ = *std::move(lease_cluster);
    progress_ = std::make_unique<kube::PodProgress>();
    return {};
  }

  Status Serve() {
    const auto serve = [](const char* what, const runtime::BindAddress& address, http::Handler handler,
                          std::unique_ptr<http::Server>& server) -> Status {
      if (address.Off()) return {};
      auto started =
          http::Server::Start({.host = address.host,
                               .port = address.port,
                               .log = [what](const std::string& line) { spdlog::debug("{}: {}", what, line); }},
                              std::move(handler));
      if (!started) return Fail(started.error().Wrap(std::string("cannot serve ") + what));
      server = *std::move(started);
      spdlog::info("{} on {}:{}", what, address.host, server->port());
      return {};
    };
    if (Status status = serve("probes", options_.probes, ProbeHandler(health_), probe_server_); !status) return status;
    // On a standby too: a term that begins between two scrapes would hide the first counts of its leader.
    controller::BeginCounters(metrics_);
    return serve("metrics", options_.metrics, MetricsHandler(metrics_), metrics_server_);
  }

  void SetChecks() {
    if (elector_) {
      health_.Set(Health::Kind::kLive, "leader-election", [this] { return elector_->Progress(); });
      health_.Set(Health::Kind::kReady, "leader-election", [this]() -> Status {
        const std::string problem = elector_->problem();
        if (problem.empty()) return {};
        return Fail(ErrorCode::kUnavailable, problem);
      });
    }
    health_.Set(Health::Kind::kLive, "watches", [this]() -> Status {
      std::lock_guard lock(mutex_);
      return controller_ == nullptr ? Status() : controller_->Alive();
    });
    health_.Set(Health::Kind::kReady, "caches", [this]() -> Status {
      std::lock_guard lock(mutex_);
      if (controller_ != nullptr) return controller_->Synced();
      if (elector_) return {};  // a standby needs none
      return Fail(ErrorCode::kUnavailable, "not started yet");
    });
  }

  void OnRequest(const kube::RequestInfo& request) {
    metrics_.Count(metric::kRequests, {{"verb", request.verb},
                                       {"resource", request.resource},
                                       {"subresource", request.subresource},
                                       {"code", std::to_string(request.code)}});
    metrics_.Observe(metric::kRequestSeconds, {{"verb", request.verb}, {"resource", request.resource}},
                     request.seconds);
    metrics_.Observe(metric::kThrottleSeconds, {}, request.throttled_seconds);
  }

  void Collect(runtime::Scrape& scrape) {
    runtime::CollectProcess(scrape);
    scrape.Gauge(metric::kBuildInfo, {{"version", options_.version}}, 1);
    scrape.Gauge(metric::kLeads, {{"name", options_.election.name}}, !elector_ || elector_->IsLeader() ? 1 : 0);
  }

  // One controller per term, until we are told to end.
  void Run(std::stop_token stop) {
    if (!elector_) {
      Term(stop, [] { return true; }, [&] { AwaitStop(stop); });
      return;
    }
    while (const std::optional<uint64_t> term = elector_->AwaitTerm(stop)) {
      Term(stop, [this, term] { return elector_->Leads(*term); }, [&] { elector_->AwaitEnd(*term, stop); });
      if (stop.stop_requested()) break;
    }
    elector_->Stop();
  }

  static void AwaitStop(std::stop_token stop) {
    std::mutex mutex;
    std::condition_variable_any changed;
    std::unique_lock lock(mutex);
    changed.wait(lock, std::move(stop), [] { return false; });
  }

  // `leads`: whether the term still lasts. `await_end` returns when it has ended, or the process is to end.
  void Term(const std::stop_token& stop, const std::function<bool()>& leads, const std::function<void()>& await_end) {
    runtime::FencedCluster fenced(*cluster_, leads);
    controller::ControllerOptions options = options_.controller;
    options.metrics = &metrics_;
    controller::Controller controller(fenced, *progress_, clock_, options);
    {
      std::lock_guard lock(mutex_);
      controller_ = &controller;
    }
    while (leads() && !stop.stop_requested()) {
      const Status started = controller.Start(kSyncPatience, stop);
      if (started) {
        spdlog::info("the caches are filled; reconciling");
        malloc_trim(0);  // the pages of the lists are done with
        await_end();
        break;
      }
      if (!stop.stop_requested()) spdlog::warn("still waiting: {}", started.error().message);
    }
    if (stop.stop_requested()) {
      spdlog::info("ending: no new work is taken");
      if (controller.Drain(options_.drain_timeout)) {
        // Nothing is written from here on, so another may take over while watches and threads are still ending.
        if (elector_) elector_->Stop();
      } else {
        // What has been sent may still be carried out: the lease is kept until it has been answered.
        spdlog::warn("workers were still busy after {} s; they begin no further call",
                     options_.drain_timeout.count() / 1000);
        cluster_->Stop();
      }
    } else {
      spdlog::warn("the term has ended: the controller is stopped");
    }
    {
      std::lock_guard lock(mutex_);
      controller_ = nullptr;
    }
    controller.Stop();
  }

  ManagerOptions options_;
  const RealClock clock_;
  runtime::Metrics metrics_;
  Health health_;
  std::unique_ptr<kube::KubeCluster> cluster_;
  std::unique_ptr<kube::KubeCluster> lease_cluster_;  // of its own, so that nothing else can keep the lease waiting
  std::unique_ptr<kube::PodProgress> progress_;
  std::optional<runtime::LeaderElector> elector_;
  std::mutex mutex_;                              // guards controller_
  controller::Controller* controller_ = nullptr;  // of the term
  runtime::Metrics::Registration collector_;
  std::unique_ptr<http::Server> probe_server_;
  std::unique_ptr<http::Server> metrics_server_;
  std::jthread terms_;
};

Manager::Manager(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Manager::~Manager() { Stop(); }
void Manager::Stop() { impl_->Stop(); }

Result<std::unique_ptr<Manager>> Manager::Start(ManagerOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  if (Status status = impl->Start(); !status) return Fail(status.error());
  return std::unique_ptr<Manager>(new Manager(std::move(impl)));
}

}  // namespace trainyard
