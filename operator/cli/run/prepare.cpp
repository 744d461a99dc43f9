#include "operator/cli/run/prepare.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "operator/api/names.h"
#include "operator/base/files.h"
#include "operator/base/quantity.h"
#include "operator/cli/job_file.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;
using Errors = std::vector<std::string>;

// "corpus=data/text" -> corpus, absolute path.
std::map<std::string, fs::path> ParseVolumes(const std::vector<std::string>& texts, Errors& errors) {
  std::map<std::string, fs::path> volumes;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos || equals + 1 == text.size()) {
      errors.push_back("--volume: '" + api::Printable(text) + "' is not NAME=PATH");
      continue;
    }
    const std::string name = text.substr(0, equals);
    const fs::path path = fs::absolute(text.substr(equals + 1)).lexically_normal();
    if (!volumes.emplace(name, path).second) errors.push_back("--volume: '" + name + "' is given twice");
  }
  return volumes;
}

void MapVolumes(const std::map<std::string, fs::path>& volumes, api::Spec& spec, Errors& errors) {
  for (const auto& [name, path] : volumes) {
    auto found =
        std::find_if(spec.volumes.begin(), spec.volumes.end(), [&](const api::Volume& v) { return v.name == name; });
    if (found == spec.volumes.end()) {
      std::vector<std::string_view> known;
      for (const api::Volume& volume : spec.volumes) known.push_back(volume.name);
      errors.push_back("--volume: the job has no volume '" + api::Printable(name) + "'; " +
                       (known.empty() ? "spec.volumes is empty" : api::Suggest(name, known)));
      continue;
    }
    *found = {.name = name, .host_path = path.string()};
  }
}

// Where a volume of the job lies on this machine; empty for an emptyDir.
fs::path DirectoryOf(const api::Volume& volume, const std::string& state_dir) {
  if (!volume.host_path.empty()) return volume.host_path;
  if (!volume.claim_name.empty()) return fs::path(state_dir) / "volumes" / volume.claim_name;
  return {};
}

template <typename File>
void CheckFiles(const api::Spec& spec, const std::string& state_dir, const char* list, const std::vector<File>& files,
                Errors& errors) {
  for (size_t i = 0; i < files.size(); ++i) {
    for (const api::Volume& volume : spec.volumes) {
      if (volume.name != files[i].volume) continue;
      const fs::path path = DirectoryOf(volume, state_dir) / files[i].path;
      std::error_code error;
      if (fs::is_regular_file(path, error)) continue;
      errors.push_back(std::string("spec.data.") + list + "[" + std::to_string(i) + "]: there is no file " +
                       path.string() + "; put it there, or say where volume '" + volume.name + "' lies: --volume " +
                       volume.name + "=DIRECTORY");
    }
  }
}

// A directory for checkpoints need not exist yet. A ladder makes none in it.
void TakeCheckpointDirectory(const std::string& state_dir, bool ladder, RunSetup& setup, Errors& errors) {
  const api::Spec& spec = setup.job.spec;
  if (!spec.checkpoint) return;
  for (const api::Volume& volume : spec.volumes) {
    if (volume.name != spec.checkpoint->volume) continue;
    const fs::path root = DirectoryOf(volume, state_dir);
    if (root.empty()) return;  // each pod has its own
    const std::string& path = spec.checkpoint->path;
    const fs::path directory = ladder ? root : root / (path.empty() ? setup.job.meta.name : path);
    if (auto made = MakeDirectories(directory.string()); !made) {
      errors.push_back("spec.checkpoint: " + made.error().message);
      return;
    }
    if (ladder) return;
    auto lock = checkpoint::UseLock::ToTrain(directory.string());
    if (lock) {
      setup.checkpoints = std::move(*lock);
    } else {
      errors.push_back("spec.checkpoint: another 'trainyard run' trains with " + directory.string() +
                       "; wait for it, or give this job another spec.checkpoint.path");
    }
  }
}

}  // namespace

RunSetup PrepareRun(const RunFlags& flags, const std::string& state_dir, Errors& errors) {
  RunSetup setup;
  setup.cluster = {.state_dir = state_dir, .nodes = flags.nodes, .gpus_per_node = flags.gpus_per_node};
  if (!flags.memory_per_gpu.empty()) {
    auto bytes = ParseQuantity(flags.memory_per_gpu);
    if (!bytes) {
      errors.push_back("--memory-per-gpu: " + bytes.error().message);
    } else if (*bytes < (1 << 20)) {
      errors.push_back("--memory-per-gpu: " + flags.memory_per_gpu + " is less than 1Mi");
    } else {
      setup.cluster.gpu_memory_mib = *bytes >> 20;
    }
  }
  const auto volumes = ParseVolumes(flags.volumes, errors);
  JobFile file = LoadJobFile(
      flags.file, [&](api::TrainingJob& job, Errors& job_errors) { MapVolumes(volumes, job.spec, job_errors); });
  errors.insert(errors.end(), file.errors.begin(), file.errors.end());
  if (file.errors.empty() && file.jobs.size() != 1) {
    errors.push_back(flags.file + ": holds " + std::to_string(file.jobs.size()) + " jobs; run takes one");
  }
  if (!errors.empty()) return setup;
  setup.job = std::move(file.jobs.front());
  const api::Spec& spec = setup.job.spec;
  if (spec.suspend) errors.push_back(flags.file + ": spec.suspend is true, so nothing would run; set it to false");
  if (!spec.IsOurs()) {
    errors.push_back(flags.file + ": spec.managedBy is '" + spec.managed_by +
                     "', so nothing would run; leave it out to run the job here");
  }
  if (spec.data && !spec.plan_only) {
    CheckFiles(spec, state_dir, "train", spec.data->train, errors);
    CheckFiles(spec, state_dir, "validation", spec.data->validation, errors);
  }
  if (errors.empty() && !spec.plan_only) TakeCheckpointDirectory(state_dir, !flags.ladder.empty(), setup, errors);
  return setup;
}

}  // namespace trainyard::cli
