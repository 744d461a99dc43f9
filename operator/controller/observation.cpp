#include "operator/controller/observation.h"

#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

#include "operator/api/names.h"
#include "operator/controller/progress_json.h"

namespace trainyard::controller {

void ReadProgress(lifecycle::Input& input, cluster::ProgressSource& progress) {
  const api::JobStatus& status = input.job.status;
  if (api::IsTerminal(status.phase)) return;
  for (const auto* pods : {&input.pods, &input.ended}) {
    const auto asked = std::find_if(pods->begin(), pods->end(), [&](const api::PodSnapshot& pod) {
      return pod.node_rank == 0 && pod.attempt == status.attempt && pod.owner_uid == input.job.meta.uid &&
             (pod.phase == api::PodPhase::kRunning || pod.Terminal());
    });
    if (asked == pods->end()) continue;
    const Result<nlohmann::json> reply = progress.Read(*asked);
    if (!reply) {
      spdlog::debug("progress of {}: {}", input.job.meta.name, reply.error().message);
      return;
    }
    Result<ProgressReport> report = ProgressFromJson(*reply, input.job.meta.uid);
    if (!report) {
      spdlog::warn("progress of {}: {}", input.job.meta.name, report.error().message);
      return;
    }
    input.progress = std::move(report->progress);
    input.checkpoint = std::move(report->checkpoint);
    input.progress_attempt = report->attempt;
    return;
  }
}

lifecycle::Input Observe(const JobRecord& record, Caches& caches, cluster::ProgressSource& progress, TimePoint now) {
  lifecycle::Input input;
  input.job = record.job;
  input.now = now;
  input.pods = caches.pods().Of(record.key.ns, record.uid, input.now);
  input.ended = caches.pods().EndedOf(record.key.ns, record.uid);
  input.service_exists = caches.HasService({record.key.ns, api::ServiceName(record.job)}, record.uid);
  ReadProgress(input, progress);
  return input;
}

}  // namespace trainyard::controller
