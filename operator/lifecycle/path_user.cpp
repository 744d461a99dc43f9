#include "operator/lifecycle/path_user.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include "operator/api/names.h"
#include "operator/lifecycle/conditions.h"
#include "operator/lifecycle/steps.h"

namespace trainyard::lifecycle {
namespace {

constexpr std::string_view kClaims = "persistentVolumeClaim/";
constexpr std::string_view kHost = "hostPath";

// The parts of a path, each after a '/': "./a//b/" is "/a/b".
std::string Normal(std::string_view path) {
  std::string normal;
  while (!path.empty()) {
    const size_t end = std::min(path.find('/'), path.size());
    const std::string_view part = path.substr(0, end);
    if (!part.empty() && part != ".") normal.append("/").append(part);
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return normal;
}

PathHold HoldOf(const api::JobStatus& status) {
  if (status.placement) return status.started ? PathHold::kStarted : PathHold::kClaimed;
  return status.attempt > 0 ? PathHold::kBegun : PathHold::kNone;
}

// It cannot start, for another reason than that of this page, and nothing of it lies anywhere.
bool CannotBegin(const api::TrainingJob& job) {
  const api::Condition* planned = FindCondition(job.status, kPlanned);
  return HoldOf(job.status) == PathHold::kNone && planned != nullptr && planned->status == "False" &&
         planned->reason != kCheckpointPathInUse && planned->observed_generation == job.meta.generation;
}

// One that is stopped is told as such, whatever it holds.
const char* StateOf(const PathUser& user) {
  if (user.deleting) return "which is being deleted";
  if (user.suspended) return "which is suspended and keeps its directory";
  switch (user.hold) {
    case PathHold::kStarted:
      return "which runs";
    case PathHold::kClaimed:
      return "which is starting";
    case PathHold::kBegun:
      return "which is between two attempts";
    case PathHold::kNone:
      break;
  }
  return "which was created first";
}

// The directories that meet, of the one who asks and of the other; nullopt: none do. Two exports may have one
// directory: the second finds that it is not empty, and says so.
std::optional<std::pair<std::string, std::string>> Meeting(const PathUser& mine, const PathUser& other) {
  if (PathsMeet(mine.checkpoints, other.checkpoints)) return {{mine.checkpoints, other.checkpoints}};
  if (PathsMeet(mine.exports, other.checkpoints)) return {{mine.exports, other.checkpoints}};
  if (PathsMeet(mine.checkpoints, other.exports)) return {{mine.checkpoints, other.exports}};
  return std::nullopt;
}

// A total order of all that meet, so that of any two exactly one waits, whoever looks.
bool GoesFirst(const PathUser& a, const PathUser& b) {
  const auto key = [](const PathUser& user) { return std::tuple(-static_cast<int>(user.hold), user.since, user.uid); };
  return key(a) < key(b);
}

std::string Explain(const PathUser& mine, const PathUser& other, const std::pair<std::string, std::string>& keys) {
  const bool exports = keys.first == mine.exports;
  std::string text =
      exports ? "spec.checkpoint.exportOnSuccess: " + DescribePath(keys.first) : DescribePath(keys.first);
  text +=
      keys.first == keys.second ? " is in use by " : " meets " + DescribePath(keys.second) + ", which is in use by ";
  text += "TrainingJob " + other.name + ", " + StateOf(other);
  if (exports) return text + "; export to another path, or this job starts when that one has ended or is deleted";
  return text +
         "; this job starts when that one has ended or is deleted; to run beside it, create it with another "
         "spec.checkpoint.path";
}

std::string StillThere(const PathUser& mine, const api::PodSnapshot& pod) {
  return DescribePath(mine.checkpoints.empty() ? mine.exports : mine.checkpoints) + " is still in use by pod " +
         pod.name + " of another job; this job starts when that pod is gone";
}

}  // namespace

std::string PathKey(const api::Spec& spec, const std::string& volume, const std::string& path) {
  const auto found = std::find_if(spec.volumes.begin(), spec.volumes.end(),
                                  [&volume](const api::Volume& one) { return one.name == volume; });
  if (found == spec.volumes.end()) return "";
  if (!found->claim_name.empty()) return std::string(kClaims) + found->claim_name + Normal(path);
  if (found->host_path.empty()) return "";
  return std::string(kHost) + Normal(found->host_path) + Normal(path);
}

bool PathsMeet(const std::string& a, const std::string& b) {
  const std::string& outer = a.size() <= b.size() ? a : b;
  const std::string& inner = a.size() <= b.size() ? b : a;
  if (outer.empty() || !inner.starts_with(outer)) return false;
  return inner.size() == outer.size() || inner[outer.size()] == '/';
}

std::string DescribePath(const std::string& key) {
  if (!key.starts_with(kClaims)) {
    return "path " + (key.size() > kHost.size() ? api::Printable(key.substr(kHost.size())) : "/") + " of the node";
  }
  const size_t slash = std::min(key.find('/', kClaims.size()), key.size());
  const std::string path = slash < key.size() ? key.substr(slash + 1) : ".";
  return "path " + api::Printable(path) + " of claim " + key.substr(kClaims.size(), slash - kClaims.size());
}

std::optional<PathUser> PathUserOf(const api::TrainingJob& job) {
  const auto& checkpoint = job.spec.checkpoint;
  if (!checkpoint || !job.spec.IsOurs() || api::IsTerminal(job.status.phase) || CannotBegin(job)) return std::nullopt;
  if (job.spec.plan_only && !job.status.placement) return std::nullopt;
  PathUser user;
  user.checkpoints = PathKey(job.spec, checkpoint->volume, checkpoint->path.empty() ? job.meta.name : checkpoint->path);
  if (const auto& place = checkpoint->export_on_success) {
    user.exports = PathKey(job.spec, place->volume, place->path);
  }
  if (user.checkpoints.empty() && user.exports.empty()) return std::nullopt;
  user.uid = job.meta.uid;
  user.ns = job.meta.ns.empty() ? "default" : job.meta.ns;
  user.name = job.meta.name;
  user.hold = HoldOf(job.status);
  user.suspended = job.spec.suspend;
  user.deleting = job.meta.deletion_time.has_value();
  user.since = job.meta.creation_time;
  return user;
}

std::string PathInUse(Context& c) {
  const std::optional<PathUser> mine = PathUserOf(c.job);
  if (!mine || mine->hold == PathHold::kStarted) return "";
  const PathUser* first = nullptr;
  std::pair<std::string, std::string> keys;
  const std::vector<PathNeighbour> neighbours = c.PathNeighbours(*mine);
  for (const PathNeighbour& neighbour : neighbours) {
    const auto meeting = Meeting(*mine, neighbour.job);
    if (!meeting || !GoesFirst(neighbour.job, *mine)) {
      // What it says of itself is not in the way; what it left running may be.
      const auto left = std::find_if(neighbour.pods.begin(), neighbour.pods.end(),
                                     [&c](const api::PodSnapshot& pod) { return !c.Gone(pod); });
      if (left != neighbour.pods.end()) return StillThere(*mine, *left);
      continue;
    }
    if (first != nullptr && GoesFirst(*first, neighbour.job)) continue;
    first = &neighbour.job;
    keys = *meeting;
  }
  return first != nullptr ? Explain(*mine, *first, keys) : "";
}

}  // namespace trainyard::lifecycle
