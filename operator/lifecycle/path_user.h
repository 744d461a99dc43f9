// Who writes where: the directories of volumes that a job takes for its own, so that no two live jobs take the same
// one. Rules: docs/lifecycle.md, "One directory, one job". Thread-safety: plain values, pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "operator/api/snapshot.h"
#include "operator/api/training_job.h"

namespace trainyard::lifecycle {

// On pods: the key of the checkpoint directory of their attempt. It outlives the job that made them.
inline constexpr const char* kAnnotationCheckpoints = "trainyard.dev/checkpoint-directory";

// How much a job holds of its directory; who holds more goes first.
enum class PathHold {
  kNone,     // it has never claimed an attempt
  kBegun,    // it has, and is between two of them
  kClaimed,  // an attempt is claimed, and no pod of it has been started
  kStarted   // its pods are started
};

// What a job takes. Directories are keys: the volume (persistentVolumeClaim/NAME or hostPath) and the path in it, both
// normalised, joined by '/'; empty: none. One key is inside another exactly if it goes on after that and a '/'.
struct PathUser {
  std::string uid;
  std::string ns;
  std::string name;
  std::string checkpoints;  // spec.checkpoint: read, written, and cleared of what is old
  std::string exports;      // spec.checkpoint.exportOnSuccess: only written, and only where nothing is
  PathHold hold = PathHold::kNone;
  bool suspended = false;
  bool deleting = false;
  std::optional<TimePoint> since;  // its creation

  bool operator==(const PathUser&) const = default;
};

// Another job near the directories of one that asks.
struct PathNeighbour {
  PathUser job;                        // with no name: it has ended or is gone, and only its pods are left
  std::vector<api::PodSnapshot> pods;  // started ones, not ended, with a checkpoint directory in the way of those
};

// nullopt: it takes none. Jobs that are finished, only to be planned or another controller's do not, nor do those that
// cannot be planned and have never run: whoever is behind them would wait for nothing.
std::optional<PathUser> PathUserOf(const api::TrainingJob& job);

// The key of `path` in the volume that the spec calls `volume`; empty: it is an emptyDir, which no other pod sees, or
// there is no such volume.
std::string PathKey(const api::Spec& spec, const std::string& volume, const std::string& path);

// Whether two keys are the same directory, or one is inside the other. Empty keys are nowhere.
bool PathsMeet(const std::string& a, const std::string& b);

// "path runs/a of claim checkpoints"
std::string DescribePath(const std::string& key);

}  // namespace trainyard::lifecycle
