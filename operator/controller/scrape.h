// What the controller's caches and queue say when metrics are scraped.
// Thread-safety: a function that may run on any thread.
#pragma once

#include <chrono>
#include <cstddef>

#include "operator/controller/caches.h"
#include "operator/runtime/metrics.h"

namespace trainyard::controller {

// Name of the queue and the controller in metrics.
inline constexpr const char* kControllerName = "trainingjob";

// `made_at`: since when the caches are there; the age of a watch that has brought nothing yet counts from it. `now` is
// the time that jobs have waited until.
void Collect(Caches& caches, size_t queue_depth, std::chrono::steady_clock::time_point made_at, TimePoint now,
             runtime::Scrape& scrape);

}  // namespace trainyard::controller
