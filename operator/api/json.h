// TrainingJob as Kubernetes JSON, in and out. Reading `spec` is strict: an unknown field, a wrong type, a number that
// does not fit 64 bits or an unknown enum value is an error that gives the path, what was found and what is known
// there. `metadata` and `status` tolerate fields that are not ours, since the server and newer operators add some; a
// null means absent, as it does for the API server. Integers never pass through a double. Thread-safety: pure
// functions.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/api/training_job.h"
#include "operator/base/error.h"

namespace trainyard::api {

// Reads one object {apiVersion, kind, metadata, spec, status}. Fields that are absent keep the defaults of
// training_job.h; ApplyDefaults fills in the computed ones. Error: kInvalidArgument; the message gives the first
// problem and how many more there are.
Result<TrainingJob> JobFromJson(const nlohmann::json& object);
// The same, with every problem appended to `errors` (one line each); the job is usable only if none was appended.
TrainingJob ReadJob(const nlohmann::json& object, std::vector<std::string>& errors);
Result<JobStatus> StatusFromJson(const nlohmann::json& status);

// Every number, flag and enum is written, with its default where the user gave nothing; empty strings, lists, maps and
// absent objects are left out. Non-finite numbers are left out, since JSON has none.
nlohmann::json JobToJson(const TrainingJob& job);
nlohmann::json SpecToJson(const Spec& spec);
nlohmann::json StatusToJson(const JobStatus& status);

}  // namespace trainyard::api
