#include "operator/lifecycle/failure.h"

#include <algorithm>
#include <array>

#include "operator/base/ids.h"
#include "operator/lifecycle/conditions.h"
#include "operator/lifecycle/penalties.h"
#include "operator/lifecycle/pod_spec.h"
#include "operator/lifecycle/steps.h"
#include "trainer/contract/contract.h"

namespace trainyard::lifecycle {
namespace {

constexpr std::string_view kAdmissionRejected = "AdmissionRejected";
constexpr std::string_view kNodeLost = "NodeLost";
constexpr std::string_view kEvicted = "Evicted";

struct ClassRule {
  std::string_view name;
  int severity;  // a lost machine explains every other exit; a broken connection explains none
  Budget budget;
  bool blames_node;
};

constexpr std::array kRules = {
    ClassRule{kNodeLost, 100, Budget::kInfrastructure, true},
    ClassRule{kEvicted, 90, Budget::kInfrastructure, true},
    ClassRule{kAdmissionRejected, 90, Budget::kFree, true},
    ClassRule{"Preempted", 80, Budget::kFree, false},
    ClassRule{contract::failure_class::kOutOfMemory, 70, Budget::kUser, false},
    ClassRule{contract::failure_class::kStorage, 60, Budget::kInfrastructure, true},
    ClassRule{"Fenced", 57, Budget::kInfrastructure,
              false},  // a rank that knows by whom tells more than one that does not
    ClassRule{contract::failure_class::kConfiguration, 55, Budget::kNever, false},
    ClassRule{contract::failure_class::kNonFinite, 55, Budget::kNever, false},
    ClassRule{"BadImage", 55, Budget::kNever, false},
    ClassRule{contract::failure_class::kKilled, 50, Budget::kInfrastructure, true},
    ClassRule{contract::failure_class::kUser, 40, Budget::kUser, false},
    ClassRule{"StartTimeout", 30, Budget::kInfrastructure, true},
    ClassRule{contract::failure_class::kCommunication, 10, Budget::kInfrastructure, false},
};

// Containers that a signal stops because their pod is deleted, whatever they make of it.
constexpr int kExitSigkill = 128 + 9;
constexpr int kExitSigterm = 128 + 15;
constexpr size_t kSaidText = 800;  // of what a trainer says: two paths of a pod, and then what to do

const ClassRule& RuleOf(std::string_view name) {
  for (const ClassRule& rule : kRules) {
    if (rule.name == name) return rule;
  }
  return RuleOf(contract::failure_class::kUser);
}

// Reasons with which a kubelet refuses a pod before it starts any container: the node has not what its books say, or
// changed after the scheduler had looked. Source: Kubernetes' pkg/kubelet/lifecycle/predicate.go.
bool IsRefusal(const std::string& reason) {
  static constexpr std::array<std::string_view, 9> kRefusals = {"UnexpectedAdmissionError",
                                                                "NodeAffinity",
                                                                "NodePorts",
                                                                "NodeName",
                                                                "NodeUnschedulable",
                                                                "TopologyAffinityError",
                                                                "TaintToleration",
                                                                "InvalidNodeInfo",
                                                                "UnexpectedPredicateFailureType"};
  return reason.starts_with("OutOf") || std::find(kRefusals.begin(), kRefusals.end(), reason) != kRefusals.end();
}

// Reasons of pods that the kubelet or the control plane failed before or instead of their containers.
std::string ClassOfPodReason(const std::string& reason) {
  if (IsRefusal(reason)) return std::string(kAdmissionRejected);
  if (reason == "Evicted") return "Evicted";
  if (reason == "NodeLost") return "NodeLost";
  if (reason == "Preempting" || reason == "Preempted" || reason == "Terminated" || reason == "NodeShutdown" ||
      reason == "Shutdown") {
    return "Preempted";
  }
  return "";
}

// `ours`: the program keeps the contract. A user's own means by its exit codes what it likes: a failure of its own.
std::string ClassOfExit(const api::PodSnapshot& pod, int code, const nlohmann::json& said, bool ours) {
  if (pod.reason == "OOMKilled") return std::string(contract::failure_class::kOutOfMemory);
  constexpr int kLastOwnCode = 128;
  if (!ours && !said.is_object() && code <= kLastOwnCode) return std::string(contract::failure_class::kUser);
  // Nobody of ours asked for this stop: a drain, an eviction or a person did.
  bool by_signal = code == kExitSigterm || code == kExitSigkill;
  if (code == contract::kExitStopped || (pod.deleting && by_signal)) return "Preempted";
  // A launcher of before this class had a name says User.
  if (code == contract::kExitNonFinite) return std::string(contract::failure_class::kNonFinite);
  std::string named = said.is_object() ? said.value("class", std::string()) : std::string();
  auto known = std::find_if(kRules.begin(), kRules.end(), [&named](const auto& rule) { return rule.name == named; });
  return known != kRules.end() ? named : std::string(contract::ClassOfExit(code));
}

nlohmann::json ParseTermination(const std::string& text) {
  nlohmann::json said = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!said.is_object() || !said.contains("class") || !said["class"].is_string()) return nullptr;
  return said;
}

std::string SaidOf(const nlohmann::json& said, const api::PodSnapshot& pod) {
  if (said.is_object()) {
    auto message = said.find("message");
    return message != said.end() && message->is_string() ? OneLine(message->get<std::string>(), kSaidText) : "";
  }
  return OneLine(pod.termination_message.empty() ? pod.message : pod.termination_message, kSaidText);
}

// The attempt of this job that owns the checkpoint directory, where exit 9 says that one does; 0: none, or one that a
// status of this job cannot have missed. Another job's claim stays what it is: a mistake of configuration.
int64_t NewerAttempt(const Context& c, int exit_code, const nlohmann::json& said) {
  if (exit_code != contract::kExitFenced || !said.is_object() || !said.contains("message")) return 0;
  if (!said["message"].is_string()) return 0;
  const int64_t owner = contract::OwnerAttempt(said["message"].get_ref<const std::string&>());
  return owner > c.s.attempt && owner < kMaxAttempt ? owner : 0;
}

void FailJob(Context& c, const std::string& failure_class, const std::string& message) {
  c.SetPhase(api::Phase::kFailed, message);
  c.s.completion_time = c.in.now;
  c.Condition(kFailed, true, failure_class, message);
  c.Say("Warning", "Failed", message);
}

}  // namespace

bool RankFailure::RefusedByNode() const { return failure_class == kAdmissionRejected; }

bool RankFailure::WentWithNode() const { return failure_class == kNodeLost || failure_class == kEvicted; }

bool RankFailure::IsEcho() const { return failure_class == contract::failure_class::kCommunication; }

std::string WordsOf(const api::PodSnapshot& pod) { return SaidOf(ParseTermination(pod.termination_message), pod); }

RankFailure MakeFailure(int64_t rank, const std::string& node, const std::string& failure_class, std::string message) {
  const ClassRule& rule = RuleOf(failure_class);
  return {.rank = rank,
          .node = node,
          .failure_class = std::string(rule.name),
          .message = std::move(message),
          .severity = rule.severity,
          .budget = rule.budget,
          .blames_node = rule.blames_node};
}

std::optional<RankFailure> FailureOf(Context& c, int64_t rank, const api::PodSnapshot* pod) {
  const std::string& node = c.s.placement->nodes[static_cast<size_t>(rank)].node;
  std::string where = "node rank " + std::to_string(rank) + " on " + node;
  if (pod == nullptr) {
    return MakeFailure(rank, node, c.NodeLost(node) ? "NodeLost" : "Preempted", where + ": its pod was deleted");
  }
  if (pod->exit_code) {
    if (*pod->exit_code == 0) return std::nullopt;
    nlohmann::json said = ParseTermination(pod->termination_message);
    std::string message = where + " exited with code " + std::to_string(*pod->exit_code);
    if (*pod->exit_code == contract::kExitStopped && c.job.spec.UsesBundledTrainer()) {
      message = where + (pod->deleting ? ": its pod was deleted by someone else" : " was stopped by someone else");
    }
    if (std::string text = SaidOf(said, *pod); !text.empty()) message += ": " + text;
    if (int64_t newer = NewerAttempt(c, *pod->exit_code, said); newer > 0) {
      RankFailure fenced = MakeFailure(rank, node, "Fenced", message);
      fenced.newer_attempt = newer;
      return fenced;
    }
    return MakeFailure(rank, node, ClassOfExit(*pod, *pod->exit_code, said, c.job.spec.UsesBundledTrainer()), message);
  }
  if (pod->phase == api::PodPhase::kFailed) {
    std::string failure_class = ClassOfPodReason(pod->reason);
    // A pod that failed without its container's exit code was failed by its node.
    if (failure_class.empty()) failure_class = std::string(contract::failure_class::kKilled);
    std::string text = OneLine(pod->reason + (pod->message.empty() ? "" : ": " + pod->message));
    return MakeFailure(rank, node, failure_class, where + ": " + (text.empty() ? "its pod failed" : text));
  }
  if (!pod->node.empty() && pod->phase != api::PodPhase::kSucceeded && c.NodeLost(pod->node)) {
    return MakeFailure(rank, node, "NodeLost", where + ": the node is gone or unreachable");
  }
  return std::nullopt;
}

// A time of good service wipes out old failures: the counter of the back-off.
void Forgive(Context& c) {
  const api::Condition* ready = FindCondition(c.s, kReady);
  if (ready == nullptr || ready->status != "True") return;
  if (c.in.now - ready->last_transition_time >= c.opt.healthy_period) c.s.consecutive_failures = 0;
}

void CountFailure(Context& c) {
  Forgive(c);
  ++c.s.consecutive_failures;
  // Spread by a hash, since this function has no randomness: rivals must not try again in step.
  uint64_t hash = StableHash(c.job.meta.uid + "/" + std::to_string(c.s.attempt));
  double spread = static_cast<double>(hash >> 11) / static_cast<double>(1ull << 53);
  auto failures = static_cast<int>(std::min<int64_t>(c.s.consecutive_failures, 64));
  c.s.retry_after = c.in.now + c.opt.backoff.Jittered(failures, spread);
}

void BlameNode(Context& c, const std::string& node) { AddPenalty(c.s, node, c.in.now, c.opt.penalty_period); }

bool HasRun(const Context& c) {
  const api::Condition* ready = FindCondition(c.s, kReady);
  return ready != nullptr && (ready->status == "True" || ready->reason == kRankFailed);
}

int64_t EndedGraceSeconds(const Context& c, std::string_view failure_class) {
  constexpr int64_t kNothingToSave = 10;
  const int64_t grace = LostGraceSeconds(c.job);
  return failure_class == kNodeLost && c.job.spec.UsesBundledTrainer() ? std::min(kNothingToSave, grace) : grace;
}

void EndAttempt(Context& c, const RankFailure& cause, int64_t failed_ranks) {
  std::string message = "attempt " + std::to_string(c.s.attempt) + " failed: " + cause.message;
  if (failed_ranks > 1) message += " (" + std::to_string(failed_ranks - 1) + " more failed with it)";
  CountFailure(c);
  if (HasRun(c) && (cause.budget == Budget::kUser || cause.budget == Budget::kInfrastructure)) {
    if (!c.s.exposure) c.s.exposure.emplace();
    ++c.s.exposure->failures;
  }
  if (cause.blames_node) BlameNode(c, cause.node);
  LostSize(c, cause.message);
  const auto grace = std::chrono::seconds(EndedGraceSeconds(c, cause.failure_class));
  const TimePoint due = c.in.now + grace + c.opt.pod_termination_timeout;
  c.s.stop = api::StopStatus{kStopFailed, c.s.attempt, due};
  if (!HasRun(c) && !cause.WentWithNode()) c.s.undone_generation = c.job.meta.generation;
  c.Condition(kReady, false, cause.failure_class, message);
  std::string paid = "restart at no cost";
  bool user = cause.budget == Budget::kUser;
  if (cause.budget == Budget::kNever) {
    return FailJob(c, cause.failure_class, message + "; trying again cannot help");
  }
  if (cause.budget != Budget::kFree) {
    int64_t& used = user ? c.s.restarts.user : c.s.restarts.infrastructure;
    int64_t limit = user ? c.job.spec.recovery.max_user_restarts : c.job.spec.recovery.max_infrastructure_restarts;
    const char* name = user ? "user" : "infrastructure";
    if (used >= limit) {
      return FailJob(c, cause.failure_class,
                     message + "; all " + Plural(limit, std::string(name) + " restart") + " are used up");
    }
    ++used;
    paid = std::string(name) + " restart " + std::to_string(used) + " of " + std::to_string(limit);
  }
  c.SetPhase(api::Phase::kRecovering, message + "; " + paid);
  c.Say("Warning", cause.failure_class, message + "; " + paid);
  if (cause.newer_attempt > 0) AdoptAttempt(c, cause.newer_attempt);
}

void AdoptAttempt(Context& c, int64_t newest) {
  c.s.attempt = newest;
  c.s.stop.reset();
  if (c.Terminal()) return;
  c.s.placement.reset();
  c.s.started = false;
  c.s.placing_since.reset();
  c.s.ungated_at.reset();
  c.RankPods();
  c.Condition(kPlaced, false, "StatusWasBehind", "attempt " + std::to_string(newest) + " came before");
}

}  // namespace trainyard::lifecycle
