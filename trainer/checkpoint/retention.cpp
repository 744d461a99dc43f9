#include "trainer/checkpoint/retention.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/use_lock.h"

namespace trainyard::checkpoint {
namespace {

bool Has(const std::vector<int64_t>& steps, int64_t step) {
  return std::find(steps.begin(), steps.end(), step) != steps.end();
}

// Takes a checkpoint out of sight by one rename, then removes it. What stays after a crash in between is named
// "pruned-" and removed by the next TakeOver. An owner renames into its own staging directory, which it has lost when
// it is none any more: then the rename fails.
Status Remove(const std::string& root, const std::string& name, FileSystem& fs, const Fence* owner) {
  const std::string staging =
      owner != nullptr ? StagingDirectory(root, *owner) : root + "/" + std::string(kStagingDirectory);
  if (owner == nullptr) {
    if (Status s = EnsureDirectory(fs, staging); !s) return s;
  }
  std::string away;
  for (int i = 0;; ++i) {
    away = staging + "/pruned-" + name + "-" + std::to_string(i);
    if (fs.Stat(away)) continue;
    Status renamed = fs.Rename(root + "/" + name, away);
    if (renamed) break;
    if (owner != nullptr && renamed.error().code == ErrorCode::kNotFound && !fs.Stat(staging)) {
      return Fail(FencedError(root, *owner, fs));
    }
    if (renamed.error().code != ErrorCode::kAlreadyExists) return renamed;
  }
  if (Status s = fs.SyncDirectory(root); !s) return s;
  return RemoveTree(fs, away);
}

}  // namespace

std::vector<int64_t> NotKept(const std::vector<CheckpointInfo>& all, const Keep& keep) {
  int64_t valid = 0, oldest_kept = -1;
  for (const CheckpointInfo& info : all) {
    if (!info.valid || Has(keep.bad, info.step) || valid == keep.last) continue;
    ++valid;
    oldest_kept = info.step;
  }
  std::vector<int64_t> out;
  if (valid < keep.last) return out;
  int64_t reached = 0;  // multiples of every_steps
  for (auto info = all.rbegin(); info != all.rend() && info->step < oldest_kept; ++info) {
    // A save that was under way, or failed, at the multiple itself leaves the next one to stand for it.
    const bool milestone = keep.every_steps > 0 && info->step / keep.every_steps > reached;
    if (milestone) reached = info->step / keep.every_steps;
    if (!milestone && !Has(keep.in_use, info->step)) out.push_back(info->step);
  }
  return out;
}

Result<PruneInfo> Prune(const std::string& root, const Keep& keep, Check check, FileSystem& fs, const Fence* owner,
                        const std::vector<CheckpointInfo>& known) {
  if (keep.last < 1) return Fail(ErrorCode::kInvalidArgument, "at least one checkpoint is kept");
  if (keep.every_steps < 0) return Fail(ErrorCode::kInvalidArgument, "checkpoints of every -n steps cannot be kept");
  Result<std::vector<CheckpointInfo>> all = List(root, check, fs, known);
  if (!all) return Fail(all.error());
  PruneInfo info;
  for (const int64_t step : NotKept(*all, keep)) {
    const std::string name = StepDirectory(step);
    const std::optional<UseLock> alone = UseLock::ToRemove(root + "/" + name);
    if (!alone) {
      info.busy.push_back(step);
      continue;
    }
    Status removed = Remove(root, name, fs, owner);
    // The trainer of the directory may have been here first.
    if (!removed && removed.error().code == ErrorCode::kNotFound && fs.Stat(root)) continue;
    if (!removed) return Fail(removed.error());
    info.removed.push_back(step);
  }
  std::copy_if(all->begin(), all->end(), std::back_inserter(info.left),
               [&](const CheckpointInfo& one) { return !Has(info.removed, one.step); });
  return info;
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
