#include "operator/cli/checkpoints/locate.h"

#include <ostream>

#include "operator/cli/exit_codes.h"
#include "trainer/checkpoint/reader.h"

namespace trainyard::cli {

using checkpoint::CheckpointInfo;

std::string BaseName(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  if (end == std::string::npos) return path;
  const size_t slash = path.find_last_of('/', end);
  const size_t begin = slash == std::string::npos ? 0 : slash + 1;
  return path.substr(begin, end - begin + 1);
}

int Complain(const Error& error, std::ostream& err) {
  err << "trainyard: " << error.message << "\n";
  return ExitCodeOf(error);
}

bool IsCheckpoint(const std::string& path) {
  if (checkpoint::ParseStepDirectory(BaseName(path))) return true;
  return checkpoint::PosixFileSystem().Stat(path + "/" + std::string(checkpoint::kManifestFile)).has_value();
}

Result<std::string> Locate(const CheckpointRef& ref, std::ostream& err) {
  std::string path = ref.path;
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  if (IsCheckpoint(path)) {
    if (!ref.step) return path;
    return Fail(ErrorCode::kInvalidArgument,
                path + " is one checkpoint already: give its parent directory, or leave --step out");
  }
  if (ref.step) {
    const std::string one = path + "/" + checkpoint::StepDirectory(*ref.step);
    if (checkpoint::PosixFileSystem().Stat(one)) return one;
    return Fail(ErrorCode::kNotFound, "there is no checkpoint of step " + std::to_string(*ref.step) + " in " + path +
                                          ": see trainyard checkpoints list");
  }
  const Result<CheckpointInfo> newest = checkpoint::NewestValid(path);
  if (!newest) return Fail(newest.error());
  for (const std::string& line : newest->skipped) err << "trainyard: skipped " << line << "\n";
  return newest->path;
}

}  // namespace trainyard::cli
