#include <charconv>
#include <limits>
#include <optional>
#include <string_view>

#include "trainer/config/config.h"
#include "trainer/contract/contract.h"

namespace trainyard::config {
namespace {

// Collects the problems of all variables, as the JSON reader does for keys.
class EnvReader {
 public:
  explicit EnvReader(const GetEnv& get) : get_(get) {}

  std::string Text(const char* name, std::string_view fallback) {
    const char* value = get_(name);
    return value == nullptr || *value == '\0' ? std::string(fallback) : value;
  }

  // Without a fallback the variable is required.
  int64_t Int(const char* name, int64_t min, int64_t max, std::optional<int64_t> fallback) {
    const std::string text = Text(name, "");
    if (text.empty()) {
      if (!fallback.has_value()) {
        Add(name, "is not set; the launcher sets it");
      }
      return fallback.value_or(min);
    }
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) {
      Add(name, "\"" + text + "\" is not a whole number");
      return fallback.value_or(min);
    }
    if (value < min || value > max) {
      Add(name, text + " is out of range; use " + std::to_string(min) + " to " + std::to_string(max));
      return fallback.value_or(min);
    }
    return value;
  }

  void Add(const char* name, const std::string& problem) {
    problems_ += (problems_.empty() ? "" : "; ") + std::string(name) + ": " + problem;
  }
  const std::string& problems() const { return problems_; }

 private:
  const GetEnv& get_;
  std::string problems_;
};

}  // namespace

std::string RankEnv::RendezvousPrefix() const {
  return uid + "/" + std::to_string(attempt) + "/" + std::to_string(round);
}

Result<RankEnv> ReadEnv(const GetEnv& get) {
  constexpr int64_t kMany = std::numeric_limits<int32_t>::max();
  EnvReader r(get);
  RankEnv env;
  env.world = static_cast<int>(r.Int(contract::kEnvWorldSize, 1, kMany, {}));
  env.rank = static_cast<int>(r.Int(contract::kEnvRank, 0, kMany, {}));
  env.local_rank = static_cast<int>(r.Int(contract::kEnvLocalRank, 0, kMany, 0));
  env.local_world = static_cast<int>(r.Int(contract::kEnvNprocPerNode, 1, kMany, 1));
  env.node_rank = static_cast<int>(r.Int(contract::kEnvNodeRank, 0, kMany, 0));
  env.master_addr = r.Text(contract::kEnvMasterAddr, "");
  env.master_port = static_cast<int>(r.Int(contract::kEnvMasterPort, 1, 65535, contract::kDefaultMasterPort));
  env.uid = r.Text(contract::kEnvJobUid, "");
  env.attempt = r.Int(contract::kEnvAttempt, 0, kMany, 0);
  env.round = r.Int(contract::kEnvRound, 0, kMany, 0);
  env.pod_ip = r.Text(contract::kEnvPodIp, "");
  env.job_file = r.Text(contract::kEnvJobFile, contract::kDefaultJobFile);
  env.volume_root = r.Text(contract::kEnvVolumeRoot, contract::kDefaultVolumeRoot);
  env.run_dir = r.Text(contract::kEnvRunDir, contract::kDefaultRunDir);
  env.termination_log = r.Text(contract::kEnvTerminationLog, contract::kDefaultTerminationLog);
  env.collective_timeout_seconds =
      r.Int(contract::kEnvCollectiveTimeout, 1, 86400, contract::kDefaultCollectiveTimeoutSeconds);
  env.checkpoint_memory_bytes = r.Int(contract::kEnvCheckpointMemory, 0, std::numeric_limits<int64_t>::max(), -1);
  if (r.problems().empty() && env.rank >= env.world) {
    r.Add(contract::kEnvRank,
          std::to_string(env.rank) + " is not below " + contract::kEnvWorldSize + " " + std::to_string(env.world));
  }
  if (env.world > 1 && env.master_addr.empty()) {
    r.Add(contract::kEnvMasterAddr, "is not set; give the name or address of rank 0");
  }
  if (!r.problems().empty()) {
    return Fail(ErrorCode::kInvalidArgument, r.problems());
  }
  return env;
}

}  // namespace trainyard::config
