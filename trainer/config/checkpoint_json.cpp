#include "trainer/config/checkpoint_json.h"

#include <sstream>
#include <string>
#include <utility>

namespace trainyard::config {
namespace {

constexpr double kManySeconds = 1e10;  // three centuries

std::optional<ResumeFrom> ReadResumeFrom(JsonReader r) {
  if (!r.present()) return std::nullopt;
  ResumeFrom from;
  from.directory = ReadVolumePath(r);
  from.step = r.Int("step", 0, kManySteps, 0);
  from.weights_only = r.Has("weightsOnly") && r.Bool("weightsOnly");
  r.Finish();
  return from;
}

}  // namespace

// A volume is one directory name.
std::string ReadVolumeName(JsonReader& r, const char* key) {
  std::string name = r.String(key);
  if (name.find('/') != std::string::npos || name == "." || name == "..") {
    r.Add(key, "\"" + name + "\" is not the name of a volume");
  }
  return name;
}

// A path stays inside its volume.
VolumePath ReadVolumePath(JsonReader& r) {
  std::string volume = ReadVolumeName(r, "volume");
  VolumePath at{std::move(volume), r.String("path", true)};
  std::istringstream parts(at.path);
  for (std::string part; std::getline(parts, part, '/');) {
    if (part == "..") {
      r.Add("path", "\"" + at.path + "\" leaves the volume; remove \"..\"");
      break;
    }
  }
  if (at.path.starts_with('/')) {
    r.Add("path", "\"" + at.path + "\" is absolute; give it relative to the volume");
  }
  return at;
}

std::optional<Checkpoint> ReadCheckpoint(JsonReader r) {
  if (!r.present()) {
    return std::nullopt;
  }
  Checkpoint c;
  c.directory = ReadVolumePath(r);
  c.every_steps = r.Int("everySteps", 0, kManySteps);
  c.every_seconds = r.Number("everySeconds", 0, kManySeconds, true, 0.0);
  c.cost_seconds = r.Number("costSeconds", 0, kManySeconds, false, -1.0);
  c.save_seconds = r.Number("saveSeconds", 0, kManySeconds, false, 0.0);
  c.mean_seconds_between_failures = r.Number("meanSecondsBetweenFailures", 0, kManySeconds, true, 0.0);
  c.keep_last = r.Int("keepLast", 0, kManySteps);
  c.keep_every_steps = r.Int("keepEverySteps", 0, kManySteps, 0);
  c.verify_after_save = r.Has("verifyAfterSave") && r.Bool("verifyAfterSave");
  c.verify_every_hours = r.Number("verifyEveryHours", 0, kManySeconds / 3600, false, 0.0);
  c.resume =
      r.Enum<Resume>("resume", {{"Latest", Resume::kLatest}, {"Never", Resume::kNever}, {"Step", Resume::kStep}});
  c.resume_step = r.Int("resumeStep", 0, kManySteps, 0);
  c.resume_from = ReadResumeFrom(r.Object("resumeFrom", true));
  JsonReader place = r.Object("exportOnSuccess", true);
  if (place.present()) {
    c.export_on_success = ReadVolumePath(place);
    if (c.export_on_success->path.empty()) place.Add("path", "is empty; name a directory in the volume");
    place.Finish();
  }
  r.Finish();
  return c;
}

void CheckCheckpoint(const Checkpoint& c, Problems& problems) {
  if (c.resume == Resume::kStep && c.resume_step == 0) {
    problems.push_back("checkpoint.resumeStep: 0 with resume Step; give the step to resume from");
  }
  if ((c.every_steps > 0) + (c.every_seconds > 0) + (c.mean_seconds_between_failures > 0) > 1) {
    problems.push_back(
        "checkpoint: give one of everySteps, everySeconds and meanSecondsBetweenFailures, and leave the others out or "
        "0");
  }
  if (c.resume_from && c.resume_from->directory.volume == c.directory.volume &&
      c.resume_from->directory.path == c.directory.path) {
    problems.push_back("checkpoint.resumeFrom: is the job's own directory; use resume and resumeStep for that");
  }
}

}  // namespace trainyard::config
