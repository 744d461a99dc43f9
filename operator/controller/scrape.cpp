#include "operator/controller/scrape.h"

#include <string>

#include "operator/api/names.h"

namespace trainyard::controller {

namespace metric = runtime::metric;

void Collect(Caches& caches, size_t queue_depth, std::chrono::steady_clock::time_point made_at,
             runtime::Scrape& scrape) {
  scrape.Gauge(metric::kQueueDepth, {{"name", kControllerName}}, static_cast<double>(queue_depth));
  for (const auto& [phase, count] : caches.jobs().Phases()) {
    scrape.Gauge(metric::kJobs, {{"phase", std::string(api::ToString(phase))}}, static_cast<double>(count));
  }
  const auto now = std::chrono::steady_clock::now();
  for (const auto& [resource, stats] : caches.Stats()) {
    const bool ever = stats.last_event != std::chrono::steady_clock::time_point{};
    const std::chrono::duration<double> age = now - (ever ? stats.last_event : made_at);
    scrape.Gauge(metric::kLastEventAge, {{"resource", resource}}, age.count());
    scrape.Gauge(metric::kCachedObjects, {{"resource", resource}}, static_cast<double>(stats.objects));
    scrape.Counter(metric::kWatchProblems, {{"resource", resource}}, static_cast<double>(stats.problems));
    for (const auto& [reason, count] : stats.watch_restarts) {
      scrape.Counter(metric::kWatchRestarts, {{"resource", resource}, {"reason", reason}}, static_cast<double>(count));
    }
  }
  for (const auto& [product, gpus] : caches.ledger().ByProduct()) {
    scrape.Gauge(metric::kGpus, {{"product", product}, {"state", "used"}}, static_cast<double>(gpus.used));
    scrape.Gauge(metric::kGpus, {{"product", product}, {"state", "free"}}, static_cast<double>(gpus.free));
  }
}

}  // namespace trainyard::controller
