// RunCheckpointsPrune of commands.h.
#include <algorithm>
#include <map>
#include <ostream>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/base/quantity.h"
#include "operator/cli/checkpoints/commands.h"
#include "operator/cli/checkpoints/locate.h"
#include "operator/cli/exit_codes.h"
#include "trainer/checkpoint/retention.h"
#include "trainer/checkpoint/use_lock.h"
#include "trainer/checkpoint/verify.h"

namespace trainyard::cli {
namespace {

using checkpoint::CheckpointInfo;
using checkpoint::PruneInfo;

// Reads the newest checkpoints until `keep.last` of them are good: what looks whole may have rotted, and shall not be
// what an older, good one is removed for. Bad ones are named on `err` and do not count.
Status FindBad(const std::vector<CheckpointInfo>& all, checkpoint::Keep& keep, std::ostream& err) {
  int64_t good = 0;
  for (const CheckpointInfo& one : all) {
    if (good == keep.last) return {};
    if (!one.valid) continue;
    const Result<checkpoint::VerifyReport> report = checkpoint::Verify(one.path);
    if (!report) return Fail(report.error());
    if (report->ok()) {
      ++good;
      continue;
    }
    err << "trainyard: " << BaseName(one.path) << " does not count, it is bad: " << report->problems[0].ToString()
        << "\n";
    keep.bad.push_back(one.step);
  }
  return {};
}

// What Prune would do.
PruneInfo Forecast(const std::vector<CheckpointInfo>& all, const checkpoint::Keep& keep) {
  PruneInfo info;
  std::map<int64_t, std::string> paths;
  for (const CheckpointInfo& one : all) paths[one.step] = one.path;
  for (const int64_t step : checkpoint::NotKept(all, keep)) {
    (checkpoint::UseLock::ToRemove(paths[step]) ? info.removed : info.busy).push_back(step);
  }
  return info;
}

}  // namespace

int RunCheckpointsPrune(const std::string& root, const PruneFlags& flags, bool json, std::ostream& out,
                        std::ostream& err) {
  if (IsCheckpoint(root)) {
    return Complain({ErrorCode::kInvalidArgument, root + " is one checkpoint: name the directory that it is in"}, err);
  }
  const Result<std::vector<CheckpointInfo>> all = checkpoint::List(root);
  if (!all) return Complain(all.error(), err);
  checkpoint::Keep keep{.last = flags.keep_last, .every_steps = flags.keep_every};
  if (Status s = FindBad(*all, keep, err); !s) return Complain(s.error(), err);
  const Result<PruneInfo> info =
      flags.dry_run ? Result<PruneInfo>(Forecast(*all, keep)) : checkpoint::Prune(root, keep);
  if (!info) return Complain(info.error(), err);
  int64_t freed = 0;
  for (const CheckpointInfo& one : *all) {
    const bool gone = std::find(info->removed.begin(), info->removed.end(), one.step) != info->removed.end();
    freed += gone ? one.bytes : 0;
  }
  const auto kept = static_cast<int64_t>(all->size() - info->removed.size());
  if (json) {
    const nlohmann::ordered_json answer = {{"dryRun", flags.dry_run},
                                           {"removed", info->removed},
                                           {"busy", info->busy},
                                           {"kept", kept},
                                           {"bytesFreed", freed}};
    out << answer.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    return kExitOk;
  }
  for (const int64_t step : info->removed)
    out << (flags.dry_run ? "would remove step " : "removed step ") << step << "\n";
  for (const int64_t step : info->busy) out << "kept step " << step << ": it is being read\n";
  out << (flags.dry_run ? "would free " : "freed ") << FormatBytes(static_cast<double>(freed)) << "; " << kept
      << " checkpoints stay\n";
  return kExitOk;
}

}  // namespace trainyard::cli
