#include "operator/api/checks.h"
#include "operator/api/defaults.h"
#include "operator/api/json.h"
#include "operator/api/validation.h"

namespace trainyard::api {
namespace {

struct Immutable {
  const char* pointer;  // into the spec
  const char* why;
};

// The CEL rules of the CRD list the same fields.
constexpr Immutable kImmutable[] = {
    {"/model", "checkpoints hold this model"},
    {"/data/format", "the sample order follows from it"},
    {"/data/train", "the sample order follows from it"},
    {"/data/documentSeparator", "it is part of the result"},
    {"/training/sequenceLength", "the sample order follows from it"},
    {"/training/globalBatchSize", "it stays the same at every GPU count"},
    {"/training/precision", "it is part of the result"},
    {"/training/optimizer/name", "checkpoints hold its state"},
    {"/training/seed", "the sample order follows from it"},
    {"/training/determinism", "it is part of the result"},
    {"/checkpoint/path", "the job's checkpoints are there"},
    {"/checkpoint/volume", "the job's checkpoints are there"},
    {"/managedBy", "the controller that began it must end it"},
};

nlohmann::json Part(const nlohmann::json& spec, const char* pointer) {
  nlohmann::json::json_pointer where(pointer);
  return spec.contains(where) ? spec.at(where) : nlohmann::json();
}

std::string Path(const char* pointer) {
  std::string path = "spec";
  for (const char* p = pointer; *p != '\0'; ++p) path += *p == '/' ? '.' : *p;
  return path;
}

}  // namespace

std::vector<std::string> ValidateUpdate(const TrainingJob& old_job, const TrainingJob& new_job) {
  // Compared with defaults applied: writing out what was meant before is no change. Defaults of the model follow from
  // sequence length and data format; a change of those is told under their own names, not as a change of the model.
  TrainingJob before = old_job;
  TrainingJob after = new_job;
  TrainingJob model_only = new_job;
  model_only.spec.training.sequence_length = before.spec.training.sequence_length;
  model_only.spec.data = before.spec.data;
  for (TrainingJob* job : {&before, &after, &model_only}) {
    ApplyDefaults(*job);
    if (job->spec.managed_by.empty()) job->spec.managed_by = kManagedByUs;
  }
  nlohmann::json old_spec = SpecToJson(before.spec);
  nlohmann::json new_spec = SpecToJson(after.spec);
  new_spec["model"] = SpecToJson(model_only.spec)["model"];
  Checks c;
  for (const Immutable& field : kImmutable) {
    if (Part(old_spec, field.pointer) == Part(new_spec, field.pointer)) continue;
    c.Report(Path(field.pointer),
             "cannot change once the job exists (" + std::string(field.why) + "); create a new job instead");
  }
  const Optimizer& was = before.spec.training.optimizer;
  const Optimizer& is = after.spec.training.optimizer;
  if (was.name == is.name && (was.momentum > 0) != (is.momentum > 0)) {
    c.Report("spec.training.optimizer.momentum",
             "cannot change from or to 0 once the job exists (checkpoints hold its state, or none); create a new job "
             "instead");
  }
  return c.Take();
}

}  // namespace trainyard::api
