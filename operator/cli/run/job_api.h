// The API that `trainyard run` serves on loopback: TrainingJobs, with the paths, verbs and error bodies of a Kubernetes
// API server, so that the same client code reads both. Writes are held to the rules of operator/api.
// Thread-safety: the handler may be called from any thread.
#pragma once

#include "operator/cluster/cluster.h"
#include "operator/http/server.h"

namespace trainyard::cli {

// GET  /apis/trainyard.dev/v1alpha1[/namespaces/NS]/trainingjobs          a list
// GET  /apis/trainyard.dev/v1alpha1/namespaces/NS/trainingjobs/NAME
// PATCH the same with Content-Type application/merge-patch+json           spec only; 422 says what is wrong
// `cluster` must outlive the handler.
http::Handler MakeJobApi(cluster::Cluster& cluster);

}  // namespace trainyard::cli
