#include "operator/controller/yard_metrics.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "operator/cluster/cluster.h"

namespace trainyard::controller {
namespace {

namespace metric = runtime::metric;

double Of(int64_t value) { return static_cast<double>(value); }

// A job whose plan may take several products is counted under all of them in one label.
std::string ProductOf(const placement::LineEntry& entry) {
  std::string text;
  for (const std::string& product : entry.products) text += (text.empty() ? "" : "|") + product;
  return text.empty() ? "any" : text;
}

bool NewStop(const api::JobStatus& before, const api::JobStatus& after, const char* reason) {
  if (!after.stop || after.stop->reason != reason) return false;
  return !before.stop || before.stop->reason != reason || before.stop->attempt != after.stop->attempt;
}

int64_t FailedSaves(const api::JobStatus& status) {
  return status.checkpoint ? status.checkpoint->failures.value_or(0) : 0;
}

}  // namespace

std::string SizeClass(int64_t gpus) {
  if (gpus <= 1) return "1";
  if (gpus <= 8) return "2-8";
  if (gpus <= 64) return "9-64";
  return gpus <= 512 ? "65-512" : "513+";
}

void CollectYard(const placement::Census& census, const std::vector<std::string>& levels, runtime::Scrape& scrape) {
  for (const placement::ProductCensus& product : census.products) {
    const placement::Tally& tally = product.tally;
    const auto with = [&](const char* label, std::string value) {
      return runtime::MetricLabels{{"product", product.product}, {label, std::move(value)}};
    };
    scrape.Gauge(metric::kGpus, with("state", "used"), Of(tally.used));
    scrape.Gauge(metric::kGpus, with("state", "free"), Of(tally.free));
    scrape.Gauge(metric::kGpus, with("state", "unfit"), Of(tally.unfit));
    scrape.Gauge(metric::kGpusStranded, {{"product", product.product}}, Of(tally.stranded));
    scrape.Gauge(metric::kNodes, with("state", "fit"), Of(tally.nodes - tally.unfit_nodes));
    scrape.Gauge(metric::kNodes, with("state", "unfit"), Of(tally.unfit_nodes));
    scrape.Gauge(metric::kLargestGang, with("scope", "node"), Of(product.largest_in_node));
    scrape.Gauge(metric::kLargestGang, with("scope", "nvlink"), Of(product.largest_in_nvlink));
    // A level that is called like a scope of ours would be the same series twice.
    std::set<std::string> scopes = {"node", "nvlink", "any"};
    for (size_t i = 0; i < levels.size() && i < product.in_domain.size(); ++i) {
      if (scopes.insert(levels[i]).second) {
        scrape.Gauge(metric::kLargestGang, with("scope", levels[i]), Of(product.in_domain[i]));
      }
    }
    scrape.Gauge(metric::kLargestGang, with("scope", "any"), Of(tally.largest_gang));
  }
}

void CollectQueue(const placement::Line& line, TimePoint now, runtime::Scrape& scrape) {
  struct Sums {
    int64_t jobs = 0, gpus = 0;
  };
  std::map<std::pair<std::string, int64_t>, Sums> by_priority;  // and product
  std::map<std::string, int64_t> reserved;                      // by product
  int64_t reservations = 0;
  Milliseconds oldest{0};
  size_t position = 0;
  for (const placement::LineEntry& entry : line.entries) {
    if (entry.started) continue;
    ++position;
    const std::string product = ProductOf(entry);
    Sums& sums = by_priority[{product, entry.priority}];
    ++sums.jobs;
    sums.gpus += entry.gpus;
    if (!entry.reserved.empty()) ++reservations;
    for (const auto& [node, gpus] : entry.reserved) reserved[product] += gpus;
    oldest = std::max(oldest, now - entry.since);
    if (position <= metric::kQueuePositions) {
      const cluster::ObjectKey key = cluster::ParseKey(entry.name);
      scrape.Gauge(metric::kQueuePosition, {{"namespace", key.ns}, {"name", key.name}}, static_cast<double>(position));
    }
  }
  for (const auto& [key, sums] : by_priority) {
    const runtime::MetricLabels labels = {{"product", key.first}, {"priority", std::to_string(key.second)}};
    scrape.Gauge(metric::kQueueLength, labels, Of(sums.jobs));
    scrape.Gauge(metric::kQueueGpus, labels, Of(sums.gpus));
  }
  for (const auto& [product, gpus] : reserved) scrape.Gauge(metric::kReservedGpus, {{"product", product}}, Of(gpus));
  scrape.Gauge(metric::kReservations, {}, Of(reservations));
  scrape.Gauge(metric::kQueueOldest, {}, std::chrono::duration<double>(oldest).count());
}

bool Backfills(const placement::Line& line, const std::string& job_uid) {
  const placement::LineEntry* entry = line.Find(job_uid);
  if (entry == nullptr) return false;
  const auto shares = [&](const placement::LineEntry& other) {
    return entry->products.empty() || other.products.empty() ||
           std::any_of(other.products.begin(), other.products.end(), [&](const std::string& product) {
             return std::find(entry->products.begin(), entry->products.end(), product) != entry->products.end();
           });
  };
  for (const placement::LineEntry& other : line.entries) {
    if (other.position >= entry->position) break;
    if (!other.fits && !other.never && !other.started && shares(other)) return true;
  }
  return false;
}

void BeginCounters(runtime::Metrics& metrics) {
  for (const auto& name : {metric::kPreemptions, metric::kUndone, metric::kBackfilled, metric::kPodsCreated,
                           metric::kStatusWrites, metric::kSaveFailures}) {
    metrics.Count(name, {}, 0);
  }
  for (const char* budget : {"user", "infrastructure"}) metrics.Count(metric::kRestarts, {{"class", budget}}, 0);
  for (const char* result : {"written", "failed", "dropped"}) metrics.Count(metric::kEvents, {{"result", result}}, 0);
}

void CountChange(const api::TrainingJob& before, const api::JobStatus& after, runtime::Metrics& metrics) {
  if (NewStop(before.status, after, "Preempted")) metrics.Count(metric::kPreemptions);
  if (NewStop(before.status, after, "Undo")) metrics.Count(metric::kUndone);
  if (const int64_t more = FailedSaves(after) - FailedSaves(before.status); more > 0) {
    metrics.Count(metric::kSaveFailures, {}, Of(more));
  }
  const bool first_claim = before.status.attempt == 0 && after.attempt == 1 && after.placement && !after.stop;
  if (first_claim && after.plan && after.placing_since && before.meta.creation_time) {
    const std::chrono::duration<double> waited =
        std::max(Milliseconds(0), *after.placing_since - *before.meta.creation_time);
    metrics.Observe(metric::kQueueWaitSeconds, {{"gpus", SizeClass(after.plan->gpus)}}, waited.count());
  }
}

}  // namespace trainyard::controller
