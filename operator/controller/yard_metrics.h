// The yard, the queue and what becomes of gangs, as metrics. Thread-safety: pure functions; Metrics takes any thread.
#pragma once

#include <string>
#include <vector>

#include "operator/api/training_job.h"
#include "operator/base/clock.h"
#include "operator/placement/census.h"
#include "operator/placement/line.h"
#include "operator/runtime/metrics.h"

namespace trainyard::controller {

// `levels`: names of the topology's levels, far to near.
void CollectYard(const placement::Census& census, const std::vector<std::string>& levels, runtime::Scrape& scrape);

// Gauges of the line.
void CollectQueue(const placement::Line& line, TimePoint now, runtime::Scrape& scrape);

// The counters of jobs and gangs begin at 0: increase() over one that appears with its first count misses that.
void BeginCounters(runtime::Metrics& metrics);
// Counts what a status write that succeeded means: a first claim, a gang taken back, a gang preempted.
void CountChange(const api::TrainingJob& before, const api::JobStatus& after, runtime::Metrics& metrics);
// Whether someone ahead of this job in the line, who may take the same product, does not start now.
bool Backfills(const placement::Line& line, const std::string& job_uid);

// "1", "2-8", "9-64", "65-512", "513+": a few classes, so that waits of small jobs do not hide those of large ones.
std::string SizeClass(int64_t gpus);

}  // namespace trainyard::controller
