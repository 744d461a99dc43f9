#include "operator/api/json.h"

#include "operator/api/json_reader.h"
#include "operator/api/json_writer.h"

namespace trainyard::api {
namespace {

using nlohmann::json;

void ReadConstant(JsonReader& reader, const ReadContext& context, const char* name, const std::string& wanted) {
  const json* found = reader.Find(name);
  if (found == nullptr) {
    context.Report(name, "is required: '" + wanted + "'");
  } else if (*found != wanted) {
    context.Report(name, Describe(*found) + " is not '" + wanted + "'");
  }
}

Error Join(const std::vector<std::string>& errors) {
  std::string message = errors.front();
  if (errors.size() > 1) message += " (and " + std::to_string(errors.size() - 1) + " more)";
  return {ErrorCode::kInvalidArgument, message};
}

}  // namespace

TrainingJob ReadJob(const json& object, std::vector<std::string>& errors) {
  TrainingJob job;
  ReadContext strict{.strict = true, .errors = &errors};
  ReadContext tolerant{.strict = false, .errors = &errors};
  if (!ExpectObject(strict, "", object)) return job;
  JsonReader reader(strict, object, "");
  ReadConstant(reader, strict, "apiVersion", kApiVersion);
  ReadConstant(reader, strict, "kind", kKind);
  if (const json* meta = reader.Find("metadata")) JsonReader::Read(tolerant, *meta, "metadata", job.meta);
  if (const json* spec = reader.Find("spec")) {
    JsonReader::Read(strict, *spec, "spec", job.spec);
  } else {
    strict.Report("spec", "is required");
  }
  if (const json* status = reader.Find("status")) JsonReader::Read(tolerant, *status, "status", job.status);
  reader.Finish();
  return job;
}

Result<TrainingJob> JobFromJson(const json& object) {
  std::vector<std::string> errors;
  TrainingJob job = ReadJob(object, errors);
  if (!errors.empty()) return Fail(Join(errors));
  return job;
}

Result<JobStatus> StatusFromJson(const json& status) {
  std::vector<std::string> errors;
  JobStatus out;
  JsonReader::Read({.strict = false, .errors = &errors}, status, "status", out);
  if (!errors.empty()) return Fail(Join(errors));
  return out;
}

json JobToJson(const TrainingJob& job) {
  return {{"apiVersion", kApiVersion},
          {"kind", kKind},
          {"metadata", JsonWriter::Write(job.meta)},
          {"spec", SpecToJson(job.spec)},
          {"status", StatusToJson(job.status)}};
}

json SpecToJson(const Spec& spec) { return JsonWriter::Write(spec); }

json StatusToJson(const JobStatus& status) { return JsonWriter::Write(status); }

}  // namespace trainyard::api
