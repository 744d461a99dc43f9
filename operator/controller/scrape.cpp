#include "operator/controller/scrape.h"

#include <string>

#include "operator/api/names.h"
#include "operator/controller/yard_metrics.h"

namespace trainyard::controller {

namespace metric = runtime::metric;

void Collect(Caches& caches, size_t queue_depth, std::chrono::steady_clock::time_point made_at, TimePoint now,
             runtime::Scrape& scrape) {
  scrape.Gauge(metric::kQueueDepth, {{"name", kControllerName}}, static_cast<double>(queue_depth));
  for (const auto& [phase, count] : caches.jobs().Phases()) {
    scrape.Gauge(metric::kJobs, {{"phase", std::string(api::ToString(phase))}}, static_cast<double>(count));
  }
  const auto steady_now = std::chrono::steady_clock::now();
  for (const auto& [resource, stats] : caches.Stats()) {
    const bool ever = stats.last_event != std::chrono::steady_clock::time_point{};
    const std::chrono::duration<double> age = steady_now - (ever ? stats.last_event : made_at);
    scrape.Gauge(metric::kLastEventAge, {{"resource", resource}}, age.count());
    scrape.Gauge(metric::kCachedObjects, {{"resource", resource}}, static_cast<double>(stats.objects));
    scrape.Counter(metric::kWatchProblems, {{"resource", resource}}, static_cast<double>(stats.problems));
    for (const auto& [reason, count] : stats.watch_restarts) {
      scrape.Counter(metric::kWatchRestarts, {{"resource", resource}, {"reason", reason}}, static_cast<double>(count));
    }
  }
  const Ledger::Snapshot yard = caches.ledger().Look(now);
  CollectYard(yard.census, yard.levels, scrape);
  CollectQueue(yard.line, now, scrape);
}

}  // namespace trainyard::controller
