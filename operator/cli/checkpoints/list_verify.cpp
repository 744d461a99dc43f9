// RunCheckpointsList and RunCheckpointsVerify of commands.h.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <ostream>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/base/clock.h"
#include "operator/base/quantity.h"
#include "operator/cli/checkpoints/commands.h"
#include "operator/cli/checkpoints/locate.h"
#include "operator/cli/columns.h"
#include "operator/cli/exit_codes.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/verify.h"

namespace trainyard::cli {
namespace {

using checkpoint::Check;
using checkpoint::CheckpointInfo;

std::string TimeOf(const CheckpointInfo& info) {
  if (info.created_ms <= 0) return "-";
  return FormatTime(TimePoint(std::chrono::milliseconds(info.created_ms)));
}

std::string Table(const std::vector<CheckpointInfo>& list) {
  std::vector<std::vector<std::string>> rows = {{"STEP", "SIZE", "TIME", "RANKS", "STATE"}};
  for (const CheckpointInfo& info : list) {
    const bool known = info.bytes > 0;
    rows.push_back({std::to_string(info.step), known ? FormatBytes(static_cast<double>(info.bytes)) : "-", TimeOf(info),
                    known ? std::to_string(info.world) : "-", info.valid ? "complete" : "bad: " + info.problem});
  }
  return Columns(rows);
}

nlohmann::json ToJson(const std::vector<CheckpointInfo>& list) {
  nlohmann::json out = nlohmann::json::array();
  for (const CheckpointInfo& info : list) {
    nlohmann::json row = {{"step", info.step}, {"path", info.path}, {"valid", info.valid}};
    if (info.bytes > 0) {
      row["bytes"] = info.bytes;
      row["world"] = info.world;
      row["jobUid"] = info.job_uid;
      row["attempt"] = info.attempt;
    }
    if (info.created_ms > 0) row["time"] = TimeOf(info);
    if (!info.valid) row["problem"] = info.problem;
    out.push_back(std::move(row));
  }
  return out;
}

nlohmann::json ToJson(const std::string& path, const checkpoint::VerifyReport& report) {
  nlohmann::json problems = nlohmann::json::array();
  for (const checkpoint::Problem& problem : report.problems) {
    nlohmann::json row = {{"file", problem.file}, {"message", problem.message}};
    if (!problem.tensor.empty()) row["tensor"] = problem.tensor;
    if (problem.rank >= 0) row["rank"] = problem.rank;
    problems.push_back(std::move(row));
  }
  return {{"path", path},
          {"valid", report.ok()},
          {"tensors", report.tensors},
          {"files", report.files},
          {"bytes", report.bytes},
          {"bytesRead", report.bytes_read},
          {"problems", std::move(problems)}};
}

// `listed`: it was there a moment ago; pruned meanwhile, it is no problem of anybody's. In the answer to `json` where
// that is asked for, else as lines.
int VerifyOne(const std::string& path, bool listed, nlohmann::json* json, std::ostream& out, std::ostream& err) {
  const Result<checkpoint::VerifyReport> report = checkpoint::Verify(path, Check::kEverything);
  const bool gone = listed && !checkpoint::PosixFileSystem().Stat(path);
  if (gone && (!report || !report->ok())) return kExitOk;
  if (!report) return Complain(report.error(), err);
  const int code = report->ok() ? kExitOk : kExitJobFailed;
  if (json != nullptr) {
    json->push_back(ToJson(path, *report));
    return code;
  }
  for (const checkpoint::Problem& problem : report->problems) {
    out << BaseName(path) << ": bad: " << problem.ToString() << "\n";
  }
  if (!report->ok()) return code;
  out << BaseName(path) << ": ok, " << report->tensors << " tensors in " << report->files << " files, "
      << FormatBytes(static_cast<double>(report->bytes)) << "\n";
  return code;
}

}  // namespace

int RunCheckpointsList(const std::string& root, bool json, std::ostream& out, std::ostream& err) {
  const std::optional<int64_t> step = checkpoint::ParseStepDirectory(BaseName(root));
  const std::filesystem::path path = std::filesystem::absolute(root + "/.").lexically_normal().parent_path();
  Result<std::vector<CheckpointInfo>> list = checkpoint::List(step ? path.parent_path().string() : root);
  if (!list) return Complain(list.error(), err);
  if (step) {
    std::erase_if(*list, [&](const CheckpointInfo& info) { return info.step != *step; });
    if (list->empty()) return Complain({ErrorCode::kNotFound, "there is no checkpoint " + root}, err);
  }
  if (json) {
    out << ToJson(*list).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  } else if (list->empty()) {
    out << "no checkpoints in " << root << "\n";
  } else {
    out << Table(*list);
  }
  return kExitOk;
}

int RunCheckpointsVerify(const CheckpointRef& ref, bool json, std::ostream& out, std::ostream& err) {
  std::vector<std::string> paths;
  const bool listed = !ref.step && !IsCheckpoint(ref.path);
  if (!listed) {
    const Result<std::string> one = Locate(ref, err);
    if (!one) return Complain(one.error(), err);
    paths.push_back(*one);
  } else {
    const Result<std::vector<CheckpointInfo>> list = checkpoint::List(ref.path);
    if (!list) return Complain(list.error(), err);
    if (list->empty()) return Complain({ErrorCode::kNotFound, "there is no checkpoint in " + ref.path}, err);
    for (const CheckpointInfo& info : *list) paths.push_back(info.path);
  }
  nlohmann::json answer = nlohmann::json::array();
  int code = kExitOk;
  for (const std::string& path : paths)
    code = std::max(code, VerifyOne(path, listed, json ? &answer : nullptr, out, err));
  if (json) out << answer.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  return code;
}

}  // namespace trainyard::cli
