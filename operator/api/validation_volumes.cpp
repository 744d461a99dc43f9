#include "operator/api/validation_volumes.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "operator/api/names.h"

namespace trainyard::api {

const Volume* NamedVolume(Checks& c, const Spec& spec, const std::string& path, const std::string& name) {
  if (!c.Required(path, name, "the name of one of spec.volumes")) return nullptr;
  auto found = std::find_if(spec.volumes.begin(), spec.volumes.end(), [&](const Volume& v) { return v.name == name; });
  if (found != spec.volumes.end()) return &*found;
  std::vector<std::string_view> known;
  for (const Volume& volume : spec.volumes) known.push_back(volume.name);
  c.Report(path, "no volume " + Quoted(name) + " in spec.volumes; " +
                     (known.empty() ? "the list is empty" : Suggest(name, known)));
  return nullptr;
}

void CheckVolumeUse(Checks& c, const Spec& spec, const std::string& path, const std::string& name) {
  const Volume* volume = NamedVolume(c, spec, path, name);
  if (volume == nullptr || !volume->empty_dir) return;
  c.Report(path, "volume " + Quoted(name) +
                     " is an emptyDir, which is empty at first and vanishes with its pod; use a "
                     "persistentVolumeClaim or hostPath");
}

void CheckDirectory(Checks& c, const Spec& spec, const std::string& p, const std::string& volume,
                    const std::string& path) {
  CheckVolumeUse(c, spec, p + ".volume", volume);
  if (c.Required(p + ".path", path, "a directory in the volume")) c.RelativePath(p + ".path", path);
}

void CheckVolumes(Checks& c, const std::vector<Volume>& volumes) {
  c.Items("spec.volumes", volumes.size(), 64);
  std::set<std::string> seen;
  for (size_t i = 0; i < volumes.size(); ++i) {
    const Volume& v = volumes[i];
    std::string p = At("spec.volumes", i);
    if (c.Required(p + ".name", v.name, "a DNS label such as corpus") && !IsDnsLabel(v.name)) {
      c.Report(p + ".name",
               Quoted(v.name) + " is not a DNS label: at most 63 lower-case letters, digits and '-', not at the ends");
    }
    if (v.name.starts_with(kReservedVolumePrefix)) {
      c.Report(p + ".name", Quoted(v.name) + " is reserved; names must not start with " + kReservedVolumePrefix);
    }
    c.Unique(p + ".name", v.name, seen);
    int sources = (v.claim_name.empty() ? 0 : 1) + (v.host_path.empty() ? 0 : 1) + (v.empty_dir ? 1 : 0);
    if (sources != 1) {
      c.Report(p, "needs exactly one of persistentVolumeClaim, hostPath and emptyDir, has " + std::to_string(sources));
    }
    if (!v.claim_name.empty() && !IsDnsSubdomain(v.claim_name)) {
      c.Report(p + ".persistentVolumeClaim.claimName", Quoted(v.claim_name) + " is not a DNS name");
    }
    c.Length(p + ".hostPath.path", v.host_path, 1024);
    if (!v.host_path.empty() && !v.host_path.starts_with('/')) {
      c.Report(p + ".hostPath.path", Quoted(v.host_path) + " must be absolute");
    }
    if ((v.host_path + "/").find("/../") != std::string::npos) {
      c.Report(p + ".hostPath.path", Quoted(v.host_path) + " must not contain '..' parts");
    }
  }
}

}  // namespace trainyard::api
