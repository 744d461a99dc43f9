#include "trainer/checkpoint/retention.h"

#include <algorithm>

namespace trainyard::checkpoint {
namespace {

// Takes a checkpoint out of sight by one rename, then removes it. What stays after a crash in between is named
// "pruned-" and removed by the next TakeOver.
Status Remove(const std::string& root, const std::string& name, FileSystem& fs) {
  const std::string staging = root + "/" + std::string(kStagingDirectory);
  if (Status s = EnsureDirectory(fs, staging); !s) return s;
  std::string away;
  for (int i = 0;; ++i) {
    away = staging + "/pruned-" + name + "-" + std::to_string(i);
    if (fs.Stat(away)) continue;
    Status renamed = fs.Rename(root + "/" + name, away);
    if (renamed) break;
    if (renamed.error().code != ErrorCode::kAlreadyExists) return renamed;
  }
  if (Status s = fs.SyncDirectory(root); !s) return s;
  return RemoveTree(fs, away);
}

}  // namespace

Result<std::vector<int64_t>> Prune(const std::string& root, int64_t keep_last, const std::vector<int64_t>& in_use,
                                   Check check, FileSystem& fs) {
  if (keep_last < 1) return Fail(ErrorCode::kInvalidArgument, "at least one checkpoint is kept");
  Result<std::vector<CheckpointInfo>> all = List(root, check, fs);
  if (!all) return Fail(all.error());
  int64_t valid = 0, oldest_kept = -1;
  for (const CheckpointInfo& info : *all) {
    if (!info.valid || valid == keep_last) continue;
    ++valid;
    oldest_kept = info.step;
  }
  std::vector<int64_t> removed;
  if (valid < keep_last) return removed;
  for (auto info = all->rbegin(); info != all->rend() && info->step < oldest_kept; ++info) {
    if (std::find(in_use.begin(), in_use.end(), info->step) != in_use.end()) continue;
    if (Status s = Remove(root, StepDirectory(info->step), fs); !s) return Fail(s.error());
    removed.push_back(info->step);
  }
  return removed;
}

Result<std::vector<int64_t>> AbandonLater(const std::string& root, int64_t step, int64_t attempt, FileSystem& fs) {
  Result<std::vector<CheckpointInfo>> all = List(root, Check::kStructure, fs);
  if (!all) return Fail(all.error());
  std::vector<int64_t> moved;
  // Newest first: a crash in between leaves no later checkpoint that an automatic resume would take for the newest
  // after an older one had gone.
  for (const CheckpointInfo& info : *all) {
    if (info.step <= step) break;
    const std::string name = StepDirectory(info.step);
    for (int i = 0;; ++i) {
      const std::string directory =
          root + "/abandoned-" + std::to_string(attempt) + (i == 0 ? "" : "." + std::to_string(i));
      if (Status s = EnsureDirectory(fs, directory); !s) return Fail(s.error());
      if (fs.Stat(directory + "/" + name)) continue;
      if (Status s = fs.Rename(root + "/" + name, directory + "/" + name); !s) return Fail(s.error());
      if (Status s = fs.SyncDirectory(directory); !s) return Fail(s.error());
      break;
    }
    moved.push_back(info.step);
  }
  if (!moved.empty()) {
    if (Status s = fs.SyncDirectory(root); !s) return Fail(s.error());
  }
  std::reverse(moved.begin(), moved.end());
  return moved;
}

}  // namespace trainyard::checkpoint
