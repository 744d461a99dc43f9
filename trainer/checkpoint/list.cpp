// List and NewestValid of reader.h.
#include <algorithm>

#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/verify.h"

namespace trainyard::checkpoint {
namespace {

constexpr size_t kAnew = 3;  // so many of the newest are looked at whatever is known of them

// Steps that have an entry in `root`, newest first.
Result<std::vector<int64_t>> Steps(const std::string& root, FileSystem& fs) {
  Result<std::vector<std::string>> names = fs.ListDirectory(root);
  if (!names && names.error().code == ErrorCode::kNotFound) {
    return Fail(ErrorCode::kNotFound, "checkpoint directory " + root + " does not exist");
  }
  if (!names) return Fail(names.error());
  std::vector<int64_t> steps;
  for (const std::string& name : *names) {
    if (std::optional<int64_t> step = ParseStepDirectory(name)) steps.push_back(*step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

Result<FileStat> ManifestStat(const std::string& path, FileSystem& fs) {
  return fs.Stat(path + "/" + std::string(kManifestFile));
}

// The entry of that step, if it need not be looked at again.
const CheckpointInfo* Unchanged(const std::vector<CheckpointInfo>& known, int64_t step, FileSystem& fs) {
  const auto found = std::lower_bound(known.begin(), known.end(), step,
                                      [](const CheckpointInfo& one, int64_t wanted) { return one.step > wanted; });
  if (found == known.end() || found->step != step || !found->valid) return nullptr;
  const Result<FileStat> stat = ManifestStat(found->path, fs);
  const bool same = stat && stat->bytes == found->manifest_bytes && stat->modified_ms == found->manifest_ms;
  return same ? &*found : nullptr;
}

// Error: of the file system, when nothing can be said about the checkpoint.
Result<CheckpointInfo> Examine(const std::string& root, int64_t step, Check check, FileSystem& fs) {
  CheckpointInfo info;
  info.step = step;
  info.path = root + "/" + StepDirectory(step);
  // Before it is looked at: what is written in between is seen the next time.
  if (Result<FileStat> stat = ManifestStat(info.path, fs)) {
    info.manifest_bytes = stat->bytes;
    info.manifest_ms = stat->modified_ms;
  }
  Result<VerifyReport> report = Verify(info.path, check, fs);
  if (!report) return Fail(report.error());
  info.bytes = report->bytes;
  info.valid = report->ok();
  if (!info.valid) {
    info.problem = report->problems[0].ToString();
    if (report->problems.size() > 1) info.problem += " (and " + std::to_string(report->problems.size() - 1) + " more)";
  }
  info.created_ms = report->created_ms;
  info.world = report->world;
  info.job_uid = report->fence.job_uid;
  info.attempt = report->fence.attempt;
  return info;
}

}  // namespace

Result<std::vector<CheckpointInfo>> List(const std::string& root, Check check, FileSystem& fs,
                                         const std::vector<CheckpointInfo>& known) {
  Result<std::vector<int64_t>> steps = Steps(root, fs);
  if (!steps) return Fail(steps.error());
  std::vector<CheckpointInfo> out;
  for (size_t i = 0; i < steps->size(); ++i) {
    const int64_t step = (*steps)[i];
    if (const CheckpointInfo* as_it_was = i < kAnew ? nullptr : Unchanged(known, step, fs)) {
      out.push_back(*as_it_was);
      continue;
    }
    Result<CheckpointInfo> info = Examine(root, step, check, fs);
    if (!info && info.error().code == ErrorCode::kNotFound) continue;  // pruned meanwhile
    if (!info) return Fail(info.error());
    out.push_back(std::move(*info));
  }
  return out;
}

Result<CheckpointInfo> NewestValid(const std::string& root, int64_t below, Check check, FileSystem& fs) {
  Result<std::vector<int64_t>> steps = Steps(root, fs);
  if (!steps) return Fail(steps.error());
  std::vector<std::string> skipped;
  for (int64_t step : *steps) {
    if (step >= below) continue;
    Result<CheckpointInfo> info = Examine(root, step, check, fs);
    if (!info && info.error().code == ErrorCode::kNotFound) continue;
    if (!info) return Fail(info.error());
    if (info->valid) {
      info->skipped = std::move(skipped);
      return info;
    }
    skipped.push_back(StepDirectory(step) + " is bad: " + info->problem);
  }
  if (skipped.empty()) return Fail(ErrorCode::kNotFound, "there is no checkpoint in " + root);
  std::string all;
  for (const std::string& line : skipped) all += (all.empty() ? "" : "; ") + line;
  return Fail(ErrorCode::kDataLoss, "no checkpoint in " + root + " is valid: " + all);
}

}  // namespace trainyard::checkpoint
