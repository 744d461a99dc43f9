// What `trainyard top` reads of a cluster: every node, pod, job and priority class, listed page by page, kept as the
// plain snapshots that the pure rooms see. Reads only. Thread-safety: as the cluster's.
#pragma once

#include <string>
#include <vector>

#include "operator/api/snapshot.h"
#include "operator/base/error.h"
#include "operator/cluster/cluster.h"
#include "operator/controller/job_record.h"

namespace trainyard::cli {

struct ClusterView {
  std::vector<api::NodeSnapshot> nodes;
  std::vector<api::PodSnapshot> pods;       // of all namespaces, those that hold something of a node
  std::vector<controller::JobRecord> jobs;  // of all namespaces, without their text: GPUs are held by node
  std::vector<api::PriorityClass> priority_classes;
  std::vector<std::string> notes;  // one line each: what could not be read, and what that means for the rest
};

// Errors: those of the lists, with what is missing and what would help: kPermissionDenied names the rights.
Result<ClusterView> ReadCluster(cluster::Cluster& cluster);

}  // namespace trainyard::cli
