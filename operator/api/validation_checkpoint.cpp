#include "operator/api/validation_checkpoint.h"

#include <sstream>
#include <string>

#include "operator/api/names.h"
#include "operator/api/validation_training.h"
#include "operator/api/validation_volumes.h"

namespace trainyard::api {
namespace {

const std::string kPrefix = "spec.checkpoint.";

void CheckCadence(Checks& c, const Checkpoint& ck) {
  if (ck.every_steps && ck.every_minutes) c.Report("spec.checkpoint.every", "give steps or minutes, not both");
  if (ck.every_steps) c.Range(kPrefix + "every.steps", *ck.every_steps, 1, kMaxSteps);
  if (ck.every_minutes) c.Range(kPrefix + "every.minutes", *ck.every_minutes, 0, 43'200, true);
  c.Range(kPrefix + "keepLast", ck.keep_last, 1, 10'000);
  c.Range(kPrefix + "keepEverySteps", ck.keep_every_steps, 0, kMaxSteps);
  if (ck.verify) c.Range(kPrefix + "verify.everyHours", ck.verify->every_hours, 0, 8760);
}

void CheckResume(Checks& c, const Checkpoint& ck) {
  c.Range(kPrefix + "resumeStep", ck.resume_step, 0, kMaxSteps);
  if (ck.resume == Resume::kStep && ck.resume_step == 0) {
    c.Report(kPrefix + "resumeStep", "is required when resume is Step");
  }
  if (ck.resume != Resume::kStep && ck.resume_step > 0) {
    c.Report(kPrefix + "resumeStep",
             "has no meaning when resume is " + std::string(ToString(ck.resume)) + "; set resume to Step or drop it");
  }
}

// Another directory than the job's own, of which any number of jobs may read.
void CheckResumeFrom(Checks& c, const TrainingJob& job) {
  const Checkpoint& ck = *job.spec.checkpoint;
  if (!ck.resume_from) return;
  const std::string p = kPrefix + "resumeFrom";
  CheckDirectory(c, job.spec, p, ck.resume_from->volume, ck.resume_from->path);
  c.Range(p + ".step", ck.resume_from->step, 0, kMaxSteps);
  const std::string& own = ck.path.empty() ? job.meta.name : ck.path;
  if (!ck.volume.empty() && ck.resume_from->volume == ck.volume && ck.resume_from->path == own) {
    c.Report(p + ".path", Quoted(own) + " is the job's own directory; leave resumeFrom out to resume from it");
  }
  if (ck.resume != Resume::kLatest) {
    c.Report(p,
             "has no meaning when resume is " + std::string(ToString(ck.resume)) + "; set resume to Latest or drop it");
  }
}

// A directory inside that of another job, under a name that the other takes for its own, would be removed by it.
void CheckOwnNames(Checks& c, const std::string& path) {
  std::istringstream parts(path);
  for (std::string part; std::getline(parts, part, '/');) {
    const bool step =
        part.starts_with("step-") && part.size() > 5 && part.find_first_not_of("0123456789", 5) == std::string::npos;
    if (part != ".staging" && !step && !part.starts_with("abandoned-")) continue;
    c.Report(kPrefix + "path", Quoted(path) +
                                   " must not contain a part that checkpoints use themselves (.staging, step-N, "
                                   "abandoned-N)");
    return;
  }
}

// A directory of its own: what lies among checkpoints is taken for theirs.
void CheckExport(Checks& c, const TrainingJob& job) {
  const Checkpoint& ck = *job.spec.checkpoint;
  if (!ck.export_on_success) return;
  const std::string p = kPrefix + "exportOnSuccess";
  const VolumeDirectory& place = *ck.export_on_success;
  CheckDirectory(c, job.spec, p, place.volume, place.path);
  const std::string& own = ck.path.empty() ? job.meta.name : ck.path;
  if (!ck.volume.empty() && place.volume == ck.volume && (place.path + "/").starts_with(own + "/")) {
    c.Report(p + ".path", Quoted(place.path) + " is in the directory of the job's checkpoints; name another");
  }
  if (!job.spec.UsesBundledTrainer()) {
    c.Report(p, "needs the bundled trainer: a program of your own writes its model itself");
  }
}

}  // namespace

void CheckCheckpoint(Checks& c, const TrainingJob& job) {
  if (!job.spec.checkpoint) return;
  const Checkpoint& ck = *job.spec.checkpoint;
  CheckVolumeUse(c, job.spec, kPrefix + "volume", ck.volume);
  if (!ck.path.empty()) {
    c.RelativePath(kPrefix + "path", ck.path);
    CheckOwnNames(c, ck.path);
  }
  CheckCadence(c, ck);
  CheckResume(c, ck);
  CheckResumeFrom(c, job);
  CheckExport(c, job);
  if (ck.on_delete == OnDelete::kDelete && !job.spec.UsesBundledTrainer()) {
    c.Report(kPrefix + "onDelete",
             "Delete needs the bundled trainer: of a program of your own nobody else knows which files are its "
             "checkpoints");
  }
}

}  // namespace trainyard::api
