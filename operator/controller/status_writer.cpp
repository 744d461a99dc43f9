#include "operator/controller/status_writer.h"

#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "operator/api/json.h"
#include "operator/controller/yard_metrics.h"

namespace trainyard::controller {

namespace metric = runtime::metric;
using cluster::Kind;
using nlohmann::json;

void StatusWriter::Count(const metric::Name& name, const runtime::MetricLabels& labels, double by) {
  if (metrics_ != nullptr) metrics_->Count(name, labels, by);
}

void StatusWriter::CountRestarts(const api::JobStatus& before, const api::JobStatus& after) {
  const auto count = [this](const char* name, int64_t more) {
    if (more > 0) Count(metric::kRestarts, {{"class", name}}, static_cast<double>(more));
  };
  count("user", after.restarts.user - before.restarts.user);
  count("infrastructure", after.restarts.infrastructure - before.restarts.infrastructure);
}

Result<JobPtr> StatusWriter::Write(const JobPtr& record, const api::JobStatus& status) {
  json next = api::StatusToJson(status);
  json object = record->Object();
  if (next == object.value("status", json())) {
    caches_.EndDecision(*record);
    return record;
  }
  object["status"] = std::move(next);
  ++writes_;
  Count(metric::kStatusWrites);
  caches_.BeginWrite(*record);
  const Result<json> stored = cluster_.ReplaceStatus(Kind::kTrainingJob, object);
  if (!stored) {
    caches_.EndWrite(*record, nullptr);
    if (stored.error().code == ErrorCode::kConflict) ++conflicts_;
    if (stored.error().code == ErrorCode::kNotFound) {
      return Fail(ErrorCode::kConflict, "the job was deleted meanwhile");  // nothing else may be done
    }
    return Fail(stored.error());
  }
  CountRestarts(record->job.status, status);
  if (metrics_ != nullptr) CountChange(record->job, status, *metrics_);
  JobPtr written;
  try {
    written = std::make_shared<const JobRecord>(MakeJobRecord(*stored));
  } catch (const std::exception& exception) {  // what was reserved must not stay so
    caches_.EndWrite(*record, nullptr);
    return Fail(ErrorCode::kInternal, std::string("the API server's answer to a status write: ") + exception.what());
  }
  caches_.EndWrite(*record, written);
  return written;
}

}  // namespace trainyard::controller
