#include "trainer/checkpoint/remove.h"

#include <optional>
#include <string>

#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/format.h"
#include "trainer/checkpoint/source_files.h"
#include "trainer/checkpoint/use_lock.h"

namespace trainyard::checkpoint {
namespace {

// Above all attempts that there can be, so that a process of the job which still runs somewhere writes nothing any
// more.
constexpr int64_t kLastAttempt = int64_t{1} << 40;

// `huggingface` is a name that somebody else may have given a directory of checkpoints inside this one.
bool IsOurs(const std::string& root, const std::string& name, FileSystem& fs) {
  if (name == kSourceDirectory) return !fs.Stat(root + "/" + name + "/" + std::string(kStagingDirectory));
  return ParseStepDirectory(name).has_value() || name.starts_with("abandoned-");
}

// Out of sight by one rename: a half-removed checkpoint is never taken for one.
Status Remove(const std::string& root, const std::string& name, FileSystem& fs) {
  const std::string staging = root + "/" + std::string(kStagingDirectory);
  for (int i = 0;; ++i) {
    const std::string away = staging + "/pruned-" + name + "-" + std::to_string(i);
    if (fs.Stat(away)) continue;
    const Status renamed = fs.Rename(root + "/" + name, away);
    if (!renamed && renamed.error().code == ErrorCode::kAlreadyExists) continue;
    if (!renamed) return renamed;
    return RemoveTree(fs, away);
  }
}

}  // namespace

Result<Removal> RemoveAll(const std::string& root, const std::string& job_uid, FileSystem& fs) {
  Removal removal;
  const Result<std::string> owner = OwnerJob(root, fs);
  if (!owner) return Fail(owner.error());
  if (owner->empty()) return removal;
  if (*owner != job_uid) {
    return Fail(ErrorCode::kFailedPrecondition,
                "checkpoint directory " + root + " was taken over by job " + *owner + " from job " + job_uid);
  }
  // Also the answer to a job that comes at this very moment: it is newer, or it sees our claim and begins after us.
  if (const auto taken = TakeOver(root, {job_uid, kLastAttempt, 0}, fs); !taken) return Fail(taken.error());
  const Result<std::vector<std::string>> names = fs.ListDirectory(root);
  if (!names) return Fail(names.error());
  for (const std::string& name : *names) {
    if (name == kStagingDirectory) continue;
    if (!IsOurs(root, name, fs)) {
      removal.left.push_back(name);
      continue;
    }
    const std::optional<UseLock> alone = UseLock::ToRemove(root + "/" + name);
    if (!alone) {
      removal.busy.push_back(name);
      continue;
    }
    if (Status s = Remove(root, name, fs); !s) return Fail(s.error());
    removal.removed.push_back(name);
  }
  if (Status s = fs.SyncDirectory(root); !s) return Fail(s.error());
  if (!removal.busy.empty()) return removal;
  // Last, since it says whose the rest is.
  const Result<std::string> still = OwnerJob(root, fs);
  if (!still) return Fail(still.error());
  if (*still != job_uid) return removal;  // somebody has come meanwhile, and needs it
  if (Status s = RemoveTree(fs, root + "/" + std::string(kStagingDirectory)); !s) return Fail(s.error());
  if (removal.left.empty()) {
    const Status s = fs.RemoveDirectory(root);
    if (!s && s.error().code != ErrorCode::kNotFound && s.error().code != ErrorCode::kAlreadyExists)
      return Fail(s.error());
  }
  return removal;
}

}  // namespace trainyard::checkpoint
