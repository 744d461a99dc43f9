#include "operator/local/pod_process.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "operator/cluster/cluster.h"
#include "operator/local/object_rules.h"
#include "operator/local/pod_status.h"
#include "trainer/contract/contract.h"

extern char** environ;

namespace trainyard::local {
namespace {

using nlohmann::json;
using Environment = std::map<std::string, std::string>;

std::string Text(const json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_string() ? object[key].get<std::string>()
                                                                               : std::string();
}

// Kubernetes' "$(NAME)" in values, commands and arguments: unknown names stay, "$$" is "$".
std::string Expand(const std::string& text, const Environment& environment) {
  std::string expanded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '$' || i + 1 == text.size()) {
      expanded += text[i];
    } else if (text[i + 1] == '$') {
      expanded += text[++i];
    } else if (const size_t end = text.find(')', i); text[i + 1] == '(' && end != std::string::npos) {
      const std::string name = text.substr(i + 2, end - i - 2);
      const auto found = environment.find(name);
      expanded += found != environment.end() ? found->second : text.substr(i, end - i + 1);
      i = end;
    } else {
      expanded += text[i];
    }
  }
  return expanded;
}

Result<std::string> FieldRef(const json& pod, const std::string& path) {
  if (path == "status.podIP" || path == "status.hostIP" || path == "status.podIPs") return std::string(kPodIp);
  if (path == "spec.nodeName") return TextAt(pod, "/spec/nodeName"_json_pointer);
  if (path == "metadata.name" || path == "metadata.namespace" || path == "metadata.uid") {
    return Text(pod["metadata"], path.substr(std::string_view("metadata.").size()).c_str());
  }
  for (const std::string kind : {"labels", "annotations"}) {
    const std::string prefix = "metadata." + kind + "['";
    if (path.starts_with(prefix) && path.ends_with("']")) {
      const std::string name = path.substr(prefix.size(), path.size() - prefix.size() - 2);
      return Text(pod["metadata"].value(kind, json::object()), name.c_str());
    }
  }
  return Fail(ErrorCode::kInvalidArgument, "env: fieldRef \"" + path + "\" is not known to a local cluster");
}

Result<Environment> PodEnvironment(const json& pod, const json& container) {
  Environment environment;
  for (const json& entry : container.value("env", json::array())) {
    const std::string name = Text(entry, "name");
    if (name.empty() || name.find('=') != std::string::npos) {
      return Fail(ErrorCode::kInvalidArgument, "env: an entry has no proper name");
    }
    if (!entry.contains("valueFrom") || entry["valueFrom"].is_null()) {
      environment[name] = Expand(Text(entry, "value"), environment);
      continue;
    }
    const std::string path = TextAt(entry, "/valueFrom/fieldRef/fieldPath"_json_pointer);
    if (path.empty()) {
      return Fail(ErrorCode::kInvalidArgument,
                  "env: " + name + ": a local cluster has no Secrets, ConfigMaps or resource fields; give a value");
    }
    Result<std::string> value = FieldRef(pod, path);
    if (!value) return Fail(value.error());
    environment[name] = *std::move(value);
  }
  return environment;
}

// All pods share this host: rendezvous happens on its loopback, at a port that no other attempt has.
void Relocate(const PodDirectory& directory, const ProcessContext& context, Environment& environment) {
  const std::string port = std::to_string(context.master_port);
  const std::pair<const char*, std::string> moved[] = {{contract::kEnvMasterAddr, kPodIp},
                                                       {contract::kEnvMasterPort, port},
                                                       {"PET_MASTER_ADDR", kPodIp},
                                                       {"PET_MASTER_PORT", port},
                                                       {"PET_RDZV_ENDPOINT", std::string(kPodIp) + ":" + port}};
  for (const auto& [name, value] : moved) {
    if (const auto found = environment.find(name); found != environment.end()) found->second = value;
  }
  environment[contract::kEnvJobFile] = directory.job_file();
  environment[contract::kEnvVolumeRoot] = directory.volumes();
  environment[contract::kEnvRunDir] = directory.run();
  environment[contract::kEnvTerminationLog] = directory.termination_log();
  environment[contract::kEnvPodIp] = kPodIp;
  environment[contract::kEnvStatusPort] = "0";
  const auto world = environment.find(contract::kEnvWorldSize);
  const int processes = world != environment.end() ? std::max(1, std::atoi(world->second.c_str())) : 1;
  environment.emplace("OMP_NUM_THREADS", std::to_string(std::max(1, context.cores / processes)));
}

bool IsExecutable(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) && access(path.c_str(), X_OK) == 0;
}

Result<std::filesystem::path> FindProgram(const std::string& name, const Environment& environment) {
  if (name.find('/') != std::string::npos) return name;  // the start itself tells whether it is there
  const auto found = environment.find("PATH");
  std::string_view path = found != environment.end() ? std::string_view(found->second) : "/usr/bin:/bin";
  while (!path.empty()) {
    const size_t colon = std::min(path.find(':'), path.size());
    const std::filesystem::path candidate = std::filesystem::path(path.substr(0, colon)) / name;
    if (IsExecutable(candidate)) return candidate;
    path.remove_prefix(std::min(colon + 1, path.size()));
  }
  return Fail(ErrorCode::kNotFound, "exec: \"" + name + "\": executable file not found in $PATH");
}

}  // namespace

const json& MainContainer(const json& pod) {
  const json& containers = pod.at("spec").at("containers");
  for (const json& container : containers) {
    if (container.at("name") == contract::kContainerName) return container;
  }
  return containers.at(0);
}

Result<ProcessSpec> MakeProcess(const json& pod, const PodDirectory& directory, const ProcessContext& context) {
  const json& spec = pod.at("spec");
  if (spec.at("containers").size() > 1 || !spec.value("initContainers", json::array()).empty()) {
    return Fail(ErrorCode::kInvalidArgument, "a local cluster runs pods of one container, without init containers");
  }
  const json& container = MainContainer(pod);
  Result<Environment> own = PodEnvironment(pod, container);
  if (!own) return Fail(own.error());
  Environment environment = context.inherited;
  if (!context.program_dir.empty()) {
    environment["PATH"] = context.program_dir.string() + ":" + environment["PATH"];
  }
  for (auto& [name, value] : *own) environment[name] = value;
  Relocate(directory, context, environment);

  ProcessSpec process;
  for (const char* key : {"command", "args"}) {
    for (const json& word : container.value(key, json::array())) {
      if (!word.is_string()) return Fail(ErrorCode::kInvalidArgument, std::string(key) + ": must be a list of strings");
      process.arguments.push_back(Expand(word.get<std::string>(), environment));
    }
    // A container without a command runs its image's program; the bundled image's is the launcher.
    if (key == std::string_view("command") && process.arguments.empty()) process.arguments = {"trainyard-launch"};
  }
  Result<std::filesystem::path> program = FindProgram(process.arguments[0], environment);
  if (!program) return Fail(program.error());
  process.program = *std::move(program);
  process.working_directory = Text(container, "workingDir");
  process.log = directory.log();
  for (const auto& [name, value] : environment) process.environment.push_back(name + "=" + value);
  return process;
}

std::map<std::string, std::string> InheritedEnvironment() {
  static constexpr std::string_view kPrefixes[] = {"TRAINYARD_", "PET_"};
  static constexpr std::string_view kNames[] = {"MASTER_ADDR", "MASTER_PORT",    "NNODES",
                                                "NODE_RANK",   "NPROC_PER_NODE", "WORLD_SIZE",
                                                "RANK",        "LOCAL_RANK",     "POD_IP"};
  std::map<std::string, std::string> inherited;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    const bool meaningful = std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames) ||
                            std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                                        [&](std::string_view prefix) { return name.starts_with(prefix); });
    if (!meaningful && name.size() < text.size()) inherited.emplace(name, text.substr(name.size() + 1));
  }
  return inherited;
}

}  // namespace trainyard::local
