#include "operator/cli/checkpoints/checkpoints_command.h"

#include <algorithm>
#include <memory>
#include <ostream>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/base/clock.h"
#include "operator/base/quantity.h"
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

int Complain(const Error& error, std::ostream& err) {
  err << "trainyard: " << error.message << "\n";
  return ExitCodeOf(error);
}

// Name of the last directory of a path.
std::string BaseName(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  if (end == std::string::npos) return path;
  const size_t slash = path.find_last_of('/', end);
  return path.substr(slash == std::string::npos ? 0 : slash + 1,
                     end - (slash == std::string::npos ? 0 : slash + 1) + 1);
}

bool IsCheckpoint(const std::string& path) {
  if (checkpoint::ParseStepDirectory(BaseName(path))) return true;
  return checkpoint::PosixFileSystem().Stat(path + "/" + std::string(checkpoint::kManifestFile)).has_value();
}

int VerifyOne(const std::string& path, std::ostream& out, std::ostream& err) {
  const Result<checkpoint::VerifyReport> report = checkpoint::Verify(path, Check::kEverything);
  if (!report) return Complain(report.error(), err);
  for (const checkpoint::Problem& problem : report->problems) {
    out << BaseName(path) << ": bad: " << problem.ToString() << "\n";
  }
  if (!report->ok()) return kExitJobFailed;
  out << BaseName(path) << ": ok, " << report->tensors << " tensors in " << report->files << " files, "
      << FormatBytes(static_cast<double>(report->bytes)) << "\n";
  return kExitOk;
}

}  // namespace

int RunCheckpointsList(const std::string& root, bool json, std::ostream& out, std::ostream& err) {
  const Result<std::vector<CheckpointInfo>> list = checkpoint::List(root);
  if (!list) return Complain(list.error(), err);
  if (json) {
    out << ToJson(*list).dump(2) << "\n";
  } else if (list->empty()) {
    out << "no checkpoints in " << root << "\n";
  } else {
    out << Table(*list);
  }
  return kExitOk;
}

int RunCheckpointsVerify(const std::string& path, std::ostream& out, std::ostream& err) {
  if (IsCheckpoint(path)) return VerifyOne(path, out, err);
  const Result<std::vector<CheckpointInfo>> list = checkpoint::List(path);
  if (!list) return Complain(list.error(), err);
  if (list->empty()) return Complain({ErrorCode::kNotFound, "there is no checkpoint in " + path}, err);
  int code = kExitOk;
  for (const CheckpointInfo& info : *list) code = std::max(code, VerifyOne(info.path, out, err));
  return code;
}

void AddCheckpointsCommand(CLI::App& app, int& exit_code, std::ostream& out, std::ostream& err) {
  struct Flags {
    std::string path;
    std::string output;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* checkpoints = app.add_subcommand("checkpoints", "List and verify checkpoints in a directory");
  checkpoints->require_subcommand(1);
  CLI::App* list = checkpoints->add_subcommand("list", "Show the checkpoints of a job, newest first");
  list->add_option("DIRECTORY", flags->path, "Checkpoint directory of a job")->required();
  list->add_option("-o,--output", flags->output, "json instead of a table")->check(CLI::IsMember({"json"}));
  list->callback([flags, &exit_code, &out, &err] {
    exit_code = RunCheckpointsList(flags->path, flags->output == "json", out, err);
  });
  CLI::App* verify = checkpoints->add_subcommand("verify", "Read every byte and compare it with its hash");
  verify->add_option("DIRECTORY", flags->path, "One checkpoint, or the checkpoint directory of a job")->required();
  verify->callback([flags, &exit_code, &out, &err] { exit_code = RunCheckpointsVerify(flags->path, out, err); });
}

}  // namespace trainyard::cli
