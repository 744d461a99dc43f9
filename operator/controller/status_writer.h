// Writes what was decided of a job into its status, with the resource version that was read, and tells the caches.
// Thread-safety: all members from any thread; one write per job at a time.
#pragma once

#include <atomic>
#include <cstdint>

#include "operator/cluster/cluster.h"
#include "operator/controller/caches.h"
#include "operator/runtime/metrics.h"

namespace trainyard::controller {

class StatusWriter {
 public:
  // `metrics` may be null; all outlive it.
  StatusWriter(cluster::Cluster& cluster, Caches& caches, runtime::Metrics* metrics)
      : cluster_(cluster), caches_(caches), metrics_(metrics) {}

  // The job as it is after the write; the same record when there was nothing to write. What the ledger reserved for
  // the decision is settled in any case. Error: kConflict when the job has changed or is gone; nothing else may be done
  // then. Others as the cluster says.
  Result<JobPtr> Write(const JobPtr& record, const api::JobStatus& status);

  uint64_t writes() const { return writes_; }
  uint64_t conflicts() const { return conflicts_; }

 private:
  void Count(const runtime::metric::Name& name, const runtime::MetricLabels& labels = {}, double by = 1);
  void CountRestarts(const api::JobStatus& before, const api::JobStatus& after);

  cluster::Cluster& cluster_;
  Caches& caches_;
  runtime::Metrics* const metrics_;
  std::atomic<uint64_t> writes_{0}, conflicts_{0};
};

}  // namespace trainyard::controller
