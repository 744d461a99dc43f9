// What spec.volumes must keep, and who names a volume or a directory in it. Private to the room. Thread-safety: pure
// functions.
#pragma once

#include <string>

#include "operator/api/checks.h"
#include "operator/api/training_job.h"

namespace trainyard::api {

void CheckVolumes(Checks& c, const std::vector<Volume>& volumes);

// The volume that `path` names, which must exist; null: it does not, and that is reported.
const Volume* NamedVolume(Checks& c, const Spec& spec, const std::string& path, const std::string& name);

// A volume that the job reads or writes through `path` must exist and outlive a pod.
void CheckVolumeUse(Checks& c, const Spec& spec, const std::string& path, const std::string& name);

// Fields `volume` and `path` below `p`: a directory in such a volume, both required.
void CheckDirectory(Checks& c, const Spec& spec, const std::string& p, const std::string& volume,
                    const std::string& path);

}  // namespace trainyard::api
