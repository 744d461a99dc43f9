#include "operator/local/pod_directory.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <system_error>

#include "operator/local/object_rules.h"
#include "operator/local/pod_process.h"
#include "trainer/contract/contract.h"

namespace trainyard::local {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// As kubelets cut them.
constexpr int64_t kMaxTerminationMessage = 4096;
constexpr int64_t kMaxLogFallback = 2048;
constexpr size_t kMaxLogFallbackLines = 80;

// A name that stays inside its parent directory.
bool IsPlainName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos;
}

// The name under which the container sees the volume: the last part of /volumes/NAME, else the volume's own name.
std::string LinkName(const json& pod, const std::string& volume) {
  const std::string root = std::string(contract::kDefaultVolumeRoot) + "/";
  for (const json& mount : MainContainer(pod).value("volumeMounts", json::array())) {
    if (TextAt(mount, "/name"_json_pointer) != volume) continue;
    const std::string path = TextAt(mount, "/mountPath"_json_pointer);
    if (path.starts_with(root) && IsPlainName(path.substr(root.size()))) return path.substr(root.size());
  }
  return volume;
}

Status WriteFile(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) return Fail(ErrorCode::kResourceExhausted, "cannot write " + path.string());
  return {};
}

std::string Annotation(const json& pod, std::string_view name) {
  const json annotations = pod.at("metadata").value("annotations", json::object());
  const auto found = annotations.find(name);
  return found != annotations.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Status WriteDownwardFiles(const json& pod, const json& volume, const fs::path& directory) {
  fs::create_directories(directory);
  const json items = volume.at("downwardAPI").value("items", json::array());
  for (const json& item : items) {
    const std::string path = TextAt(item, "/path"_json_pointer);
    const std::string field = TextAt(item, "/fieldRef/fieldPath"_json_pointer);
    const std::string prefix = "metadata.annotations['";
    if (!IsPlainName(path) || !field.starts_with(prefix) || !field.ends_with("']")) {
      return Fail(ErrorCode::kInvalidArgument,
                  "downwardAPI: a local cluster knows annotations only, not \"" + field + "\"");
    }
    const std::string name = field.substr(prefix.size(), field.size() - prefix.size() - 2);
    if (Status status = WriteFile(directory / path, Annotation(pod, name)); !status) return status;
  }
  return {};
}

std::string ReadEnd(const fs::path& path, int64_t bytes) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  const int64_t size = file.tellg();
  file.seekg(std::max<int64_t>(0, size - bytes));
  return {std::istreambuf_iterator<char>(file), {}};
}

// JSON text must be UTF-8; a program may write anything.
std::string ToUtf8(const std::string& text) {
  const std::string quoted = json(text).dump(-1, ' ', false, json::error_handler_t::replace);
  return json::parse(quoted).get<std::string>();
}

}  // namespace

Status PodDirectory::Make(const json& pod, const std::map<std::string, fs::path>& claims,
                          const fs::path& claims_root) const try {
  fs::remove_all(root_);
  for (const fs::path& directory : {root_, run(), volumes()}) fs::create_directories(directory);
  if (Status status = WriteFile(log(), ""); !status) return status;
  if (Status status = WriteFile(termination_log(), ""); !status) return status;
  if (Status status = WriteFile(job_file(), Annotation(pod, contract::kAnnotationJob)); !status) return status;
  for (const json& volume : pod.at("spec").value("volumes", json::array())) {
    const std::string name = TextAt(volume, "/name"_json_pointer);
    if (!IsPlainName(name)) return Fail(ErrorCode::kInvalidArgument, "volumes: an entry has no proper name");
    const std::string claim = TextAt(volume, "/persistentVolumeClaim/claimName"_json_pointer);
    fs::path target;
    if (IsPlainName(claim)) {
      const auto mapped = claims.find(claim);
      target = mapped != claims.end() ? mapped->second : claims_root / claim;
      fs::create_directories(target);
    } else if (const std::string path = TextAt(volume, "/hostPath/path"_json_pointer); !path.empty()) {
      target = path;
    } else if (volume.contains("emptyDir")) {
      target = root_ / "empty" / name;
      fs::create_directories(target);
    } else if (volume.contains("downwardAPI")) {
      if (Status status = WriteDownwardFiles(pod, volume, root_ / "downward" / name); !status) return status;
      continue;
    } else {
      return Fail(
          ErrorCode::kInvalidArgument,
          "volume " + name + ": a local cluster knows persistentVolumeClaim, hostPath, emptyDir and downwardAPI");
    }
    fs::create_directory_symlink(fs::absolute(target), volumes() / LinkName(pod, name));
  }
  return {};
} catch (const fs::filesystem_error& error) {
  const bool denied = error.code() == std::errc::permission_denied || error.code() == std::errc::read_only_file_system;
  return Fail(denied ? ErrorCode::kPermissionDenied : ErrorCode::kResourceExhausted, error.what());
} catch (const json::exception& error) {
  return Fail(ErrorCode::kInvalidArgument, std::string("pod: ") + error.what());
}

std::string PodDirectory::ReadTerminationMessage(const json& pod, bool failed) const {
  std::string message = ReadEnd(termination_log(), kMaxTerminationMessage);
  if (message.empty() && failed &&
      TextAt(MainContainer(pod), "/terminationMessagePolicy"_json_pointer) == "FallbackToLogsOnError") {
    message = ReadEnd(log(), kMaxLogFallback);
    size_t lines = 0;
    for (size_t i = message.size(); i-- > 0;) {
      if (message[i] == '\n' && ++lines > kMaxLogFallbackLines) {
        message.erase(0, i + 1);
        break;
      }
    }
  }
  return ToUtf8(message);
}

}  // namespace trainyard::local
