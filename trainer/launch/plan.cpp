#include "trainer/launch/plan.h"

#include <unistd.h>
#include <charconv>
#include <limits>

#include "trainer/contract/contract.h"

namespace trainyard::launch {
namespace {

namespace c = trainyard::contract;

constexpr int kMaxProcesses = 1024;  // per node; far beyond any machine, and a typing error starts no fork bomb

// Reads variables and collects what is wrong with them.
class Env {
 public:
  explicit Env(const GetEnv& get) : get_(get) {}

  std::string Text(const char* name, std::string_view fallback) const {
    const char* value = get_(name);
    return std::string(value != nullptr && *value != '\0' ? std::string_view(value) : fallback);
  }
  int64_t Number(const char* name, int64_t fallback, int64_t min, int64_t max) {
    const std::string text = Text(name, "");
    if (text.empty()) return fallback;
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) {
      Problem(std::string(name) + ": '" + text + "' is not a whole number");
      return fallback;
    }
    if (value < min || value > max) {
      Problem(std::string(name) + ": " + text + " is not between " + std::to_string(min) + " and " +
              std::to_string(max));
      return fallback;
    }
    return value;
  }
  void Problem(const std::string& text) { problems_ += (problems_.empty() ? "" : "; ") + text; }
  const std::string& problems() const { return problems_; }

 private:
  const GetEnv& get_;
  std::string problems_;
};

}  // namespace

Result<Plan> ReadPlan(const GetEnv& get, const std::vector<std::string>& arguments,
                      const std::string& default_program) {
  constexpr int64_t kMany = std::numeric_limits<int32_t>::max();
  Env env(get);
  Plan plan;
  plan.nnodes = static_cast<int>(env.Number(c::kEnvNnodes, 1, 1, 1 << 20));
  plan.node_rank = static_cast<int>(env.Number(c::kEnvNodeRank, 0, 0, kMany));
  plan.nproc_per_node = static_cast<int>(env.Number(c::kEnvNprocPerNode, 1, 1, kMaxProcesses));
  if (plan.node_rank >= plan.nnodes) {
    env.Problem("NODE_RANK: " + std::to_string(plan.node_rank) + " is not below NNODES " + std::to_string(plan.nnodes));
  }
  const int64_t world = env.Number(c::kEnvWorldSize, plan.world_size(), 1, kMany);
  if (env.problems().empty() && world != plan.world_size()) {
    env.Problem("WORLD_SIZE: " + std::to_string(world) + " is not NNODES " + std::to_string(plan.nnodes) +
                " x NPROC_PER_NODE " + std::to_string(plan.nproc_per_node));
  }
  plan.master_addr = env.Text(c::kEnvMasterAddr, plan.nnodes == 1 ? "127.0.0.1" : "");
  if (plan.master_addr.empty()) env.Problem("MASTER_ADDR: missing, and NNODES is more than 1");
  plan.master_port = static_cast<int>(env.Number(c::kEnvMasterPort, c::kDefaultMasterPort, 1, 65535));
  plan.job_uid = env.Text(c::kEnvJobUid, "");
  plan.attempt = env.Number(c::kEnvAttempt, 0, 0, kMany);
  plan.round = env.Number(c::kEnvRound, 0, 0, kMany);
  plan.status_port = static_cast<int>(env.Number(c::kEnvStatusPort, c::kDefaultStatusPort, 0, 65535));
  // A pod serves all its interfaces (probes, port-forward); on a laptop nobody else is to reach it.
  const std::string pod_ip = env.Text(c::kEnvPodIp, "");
  plan.status_host = pod_ip.empty() || pod_ip.rfind("127.", 0) == 0 || pod_ip == "::1" ? "127.0.0.1" : "";
  plan.token = env.Text(c::kEnvToken, "");
  plan.run_dir = env.Text(c::kEnvRunDir, c::kDefaultRunDir);
  // Outside of Kubernetes the default file does not exist, and is not made.
  plan.termination_log = env.Text(c::kEnvTerminationLog, "");
  if (plan.termination_log.empty() && access(c::kDefaultTerminationLog.data(), F_OK) == 0) {
    plan.termination_log = c::kDefaultTerminationLog;
  }
  plan.grace = std::chrono::seconds(env.Number(c::kEnvGraceSeconds, c::kDefaultGraceSeconds, 0, 86'400));
  plan.command = arguments;
  if (!plan.command.empty() && plan.command.front() == "--") plan.command.erase(plan.command.begin());
  if (plan.command.empty()) plan.command = {default_program};
  if (!env.problems().empty()) return Fail(ErrorCode::kInvalidArgument, "environment: " + env.problems());
  return plan;
}

std::vector<std::pair<std::string, std::string>> RankEnvironment(const Plan& plan, int local_rank, int64_t round) {
  return {
      {c::kEnvMasterAddr, plan.master_addr},
      {c::kEnvMasterPort, std::to_string(plan.master_port)},
      {c::kEnvNnodes, std::to_string(plan.nnodes)},
      {c::kEnvNodeRank, std::to_string(plan.node_rank)},
      {c::kEnvNprocPerNode, std::to_string(plan.nproc_per_node)},
      {c::kEnvWorldSize, std::to_string(plan.world_size())},
      {c::kEnvRank, std::to_string(plan.FirstRank() + local_rank)},
      {c::kEnvLocalRank, std::to_string(local_rank)},
      {"LOCAL_WORLD_SIZE", std::to_string(plan.nproc_per_node)},  // what scripts written for torchrun look for
      {c::kEnvRound, std::to_string(round)},
      {c::kEnvRunDir, plan.run_dir},
  };
}

}  // namespace trainyard::launch
