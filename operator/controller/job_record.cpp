#include "operator/controller/job_record.h"

#include <algorithm>

#include "operator/api/json.h"
#include "operator/lifecycle/lifecycle.h"

namespace trainyard::controller {

using nlohmann::json;

JobRecord MakeJobRecord(const json& object) {
  JobRecord record;
  // What others wrote may not be UTF-8; the server would have refused it, a test's cluster may not.
  record.text = object.dump(-1, ' ', false, json::error_handler_t::replace);
  record.key = cluster::KeyOf(object);
  record.uid = cluster::UidOf(object);
  record.version = cluster::ResourceVersionOf(object);
  if (Result<api::TrainingJob> job = api::JobFromJson(object)) {
    record.job = *std::move(job);
  } else {
    json rest = object;
    if (object.is_object() && object.contains("status")) {
      if (Result<api::JobStatus> status = api::StatusFromJson(object["status"])) {
        record.job.status = *std::move(status);
      } else {
        record.status_problem = status.error().message;
      }
      rest.erase("status");
    }
    if (Result<api::TrainingJob> readable = api::JobFromJson(rest); !readable)
      record.problem = readable.error().message;
    record.job.meta.ns = record.key.ns;
    record.job.meta.name = record.key.name;
    record.job.meta.uid = record.uid;
    record.job.meta.resource_version = record.version;
    // Such a job can be deleted all the same.
    std::vector<std::string> ignored;
    api::Meta meta = api::ReadJob(object, ignored).meta;
    record.job.meta.finalizers = std::move(meta.finalizers);
    record.job.meta.deletion_time = meta.deletion_time;
    // A job of another controller is not ours to judge: the decision leaves it alone, problem or not.
    const json::json_pointer managed_by("/spec/managedBy");
    if (object.contains(managed_by) && object[managed_by].is_string()) {
      record.job.spec.managed_by = object[managed_by].get<std::string>();
    }
    if (!record.job.spec.IsOurs()) {
      record.problem.clear();
      record.status_problem.clear();
    }
    const json::json_pointer generation("/metadata/generation");
    if (object.contains(generation) && object[generation].is_number_integer()) {
      record.job.meta.generation = object[generation].get<int64_t>();
    }
  }
  record.bookings = lifecycle::ClaimsOf(record.job);
  return record;
}

api::JobStatus StatusOfProblem(const JobRecord& record, TimePoint now) {
  api::JobStatus status = record.job.status;
  status.observed_generation = record.job.meta.generation;
  status.reason = "The spec cannot be read: " + record.problem;
  api::Condition next{"Planned", "False", "InvalidSpec", record.problem, record.job.meta.generation, now};
  const auto found = std::find_if(status.conditions.begin(), status.conditions.end(),
                                  [](const api::Condition& condition) { return condition.type == "Planned"; });
  if (found == status.conditions.end()) {
    status.conditions.push_back(next);
  } else {
    if (found->status == next.status) next.last_transition_time = found->last_transition_time;
    *found = next;
  }
  return status;
}

}  // namespace trainyard::controller
