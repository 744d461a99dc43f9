#include "operator/runtime/fenced_cluster.h"

namespace trainyard::runtime {
namespace {

using cluster::Kind;
using nlohmann::json;

tl::unexpected<Error> Refused() {
  return Fail(ErrorCode::kFailedPrecondition, "not written: this process no longer leads");
}

}  // namespace

Result<json> FencedCluster::Create(Kind kind, const json& object) {
  if (!open_()) return Refused();
  return cluster_.Create(kind, object);
}

Result<json> FencedCluster::Replace(Kind kind, const json& object) {
  if (!open_()) return Refused();
  return cluster_.Replace(kind, object);
}

Result<json> FencedCluster::ReplaceStatus(Kind kind, const json& object) {
  if (!open_()) return Refused();
  return cluster_.ReplaceStatus(kind, object);
}

Result<json> FencedCluster::Patch(Kind kind, const cluster::ObjectKey& key, cluster::PatchType type, const json& patch,
                                  bool status) {
  if (!open_()) return Refused();
  return cluster_.Patch(kind, key, type, patch, status);
}

Status FencedCluster::Delete(Kind kind, const cluster::ObjectKey& key, const cluster::DeleteOptions& options) {
  if (!open_()) return Refused();
  return cluster_.Delete(kind, key, options);
}

Status FencedCluster::DeleteCollection(Kind kind, const cluster::ListOptions& options,
                                       std::optional<int64_t> grace_seconds) {
  if (!open_()) return Refused();
  return cluster_.DeleteCollection(kind, options, grace_seconds);
}

}  // namespace trainyard::runtime
