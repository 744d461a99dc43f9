#include "operator/cli/checkpoints/in_cluster.h"

#include <ostream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "operator/base/ids.h"
#include "operator/cli/checkpoints/locate.h"
#include "operator/cli/checkpoints/pod.h"
#include "operator/cli/exit_codes.h"
#include "operator/controller/job_record.h"
#include "operator/kube/client.h"
#include "trainer/contract/contract.h"

namespace trainyard::cli {
namespace {

using cluster::Kind;
using nlohmann::json;

constexpr Milliseconds kPoll{500};
constexpr Milliseconds kPatience{60'000};   // with an API server that does not answer
constexpr Milliseconds kLeftover{600'000};  // nobody reads what a pod said so long after its end

std::string At(const json& object, const char* pointer) {
  const json::json_pointer at(pointer);
  return object.contains(at) && object.at(at).is_string() ? object.at(at).get<std::string>() : "";
}

class PodRun {
 public:
  PodRun(const kube::Config& config, const InClusterFlags& flags, const InClusterContext& context)
      : client_(config, Options()), flags_(flags), context_(context), ns_(flags.ns.empty() ? config.ns : flags.ns) {
    if (ns_.empty()) ns_ = "default";
  }

  int Run(const std::vector<std::string>& command) {
    const Result<json> pod = Describe(command);
    if (!pod) return Complain(pod.error(), context_.err);
    name_ = At(*pod, "/metadata/name");
    if (const Result<json> made = Send("create", "POST", Kind::kPod, "", pod->dump()); !made) {
      return Complain(made.error(), context_.err);
    }
    int code = Watch();
    // Whatever became of it, it does not stay. One whose program has ended needs nobody's word to go.
    const Result<json> gone = Send("delete", "DELETE", Kind::kPod, name_, ended_ ? R"({"gracePeriodSeconds":0})" : "");
    if (!gone && gone.error().code != ErrorCode::kNotFound) {
      context_.err << "trainyard: pod " << ns_ << "/" << name_ << " stays: " << gone.error().message
                   << "; remove it with kubectl delete pod\n";
      if (code == kExitOk) code = ExitCodeOf(gone.error());
    }
    return code;
  }

 private:
  static kube::KubeOptions Options() {
    kube::KubeOptions options;
    options.user_agent = "trainyard-checkpoints";
    return options;
  }

  Result<json> Send(const char* verb, const char* method, Kind kind, const std::string& name,
                    const std::string& body = "") {
    kube::Call call;
    call.verb = verb;
    call.method = method;
    call.kind = kind;
    call.ns = ns_;
    call.name = name;
    call.body = body;
    const Result<std::string> text = client_.Send(call);
    if (!text) return Fail(text.error());
    json answer = json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (answer.is_object()) return answer;
    return Fail(ErrorCode::kInternal, call.What() + ": the API server answers no JSON object");
  }

  Result<json> Describe(const std::vector<std::string>& command) {
    const Result<json> object = Send("get", "GET", Kind::kTrainingJob, flags_.job);
    if (!object && object.error().code == ErrorCode::kNotFound) {
      return Fail(ErrorCode::kNotFound, "there is no TrainingJob " + ns_ + "/" + flags_.job);
    }
    if (!object) return Fail(object.error());
    const controller::JobRecord record = controller::MakeJobRecord(*object);
    if (!record.problem.empty()) {
      return Fail(ErrorCode::kInvalidArgument, "job " + ns_ + "/" + flags_.job + ": " + record.problem);
    }
    RemoveLeftovers(record.job);
    PodRequest request;
    request.name = flags_.job + "-checkpoints-" + NewUid().substr(0, 8);
    request.image = flags_.image;
    request.command = command;
    if (Result<std::string> node = NodeOf(record.job); node) {
      request.node = *node;
    } else {
      return Fail(node.error());
    }
    return CheckpointsPod(record.job, request);
  }

  // Pods of this job by runs that were killed before they could remove them. What ended just now may be read still.
  void RemoveLeftovers(const api::TrainingJob& job) {
    kube::Call call;
    call.verb = "list";
    call.ns = ns_;
    call.query = {{"labelSelector", std::string(contract::kLabelRole) + "=" + kRole}};
    const Result<std::string> text = client_.Send(call);
    if (!text) return;  // the next call says why
    const json list = json::parse(*text, nullptr, /*allow_exceptions=*/false);
    for (const json& pod : list.is_object() ? list.value("items", json::array()) : json::array()) {
      const Result<TimePoint> ended = ParseTime(At(pod, "/status/containerStatuses/0/state/terminated/finishedAt"));
      const bool old = ended && context_.clock.Now() - *ended > kLeftover;
      if (!old || At(pod, "/metadata/ownerReferences/0/uid") != job.meta.uid) continue;
      const std::string name = At(pod, "/metadata/name");
      const Result<json> gone = Send("delete", "DELETE", Kind::kPod, name, R"({"gracePeriodSeconds":0})");
      if (gone || gone.error().code == ErrorCode::kNotFound) continue;
      context_.err << "trainyard: pod " << ns_ << "/" << name << " of an earlier run stays: " << gone.error().message
                   << "\n";
    }
  }

  // Where the job runs: a volume that one node alone may mount is there. Empty: nowhere.
  Result<std::string> NodeOf(const api::TrainingJob& job) {
    kube::Call call;
    call.verb = "list";
    call.ns = ns_;
    call.query = {{"labelSelector", std::string(contract::kLabelJobUid) + "=" + job.meta.uid}};
    const Result<std::string> text = client_.Send(call);
    if (!text) return Fail(text.error());
    const json list = json::parse(*text, nullptr, /*allow_exceptions=*/false);
    for (const json& pod : list.is_object() ? list.value("items", json::array()) : json::array()) {
      if (At(pod, "/status/phase") == "Running") return At(pod, "/spec/nodeName");
    }
    return std::string();
  }

  int Watch() {
    const TimePoint start_by = context_.clock.Now() + std::chrono::seconds(flags_.start_timeout_seconds);
    for (TimePoint answered = context_.clock.Now();;) {
      const Result<json> pod = Send("get", "GET", Kind::kPod, name_);
      if (pod) answered = context_.clock.Now();
      if (!pod && (!pod.error().Retryable() || context_.clock.Now() - answered > kPatience)) {
        return Complain(pod.error(), context_.err);
      }
      if (pod) {
        const std::string phase = At(*pod, "/status/phase");
        ended_ = phase == "Succeeded" || phase == "Failed";
        if (ended_) return Answer(*pod);
        const std::string hopeless = WhyItCannotRun(*pod);
        if (!hopeless.empty()) return Complain({ErrorCode::kFailedPrecondition, hopeless}, context_.err);
        if (phase != "Running" && context_.clock.Now() >= start_by) {
          return Complain({ErrorCode::kDeadlineExceeded, "pod " + ns_ + "/" + name_ + " does not run after " +
                                                             std::to_string(flags_.start_timeout_seconds) +
                                                             " s: " + WhyItWaits(*pod)},
                          context_.err);
        }
      }
      if (!context_.wait(kPoll)) {
        context_.err << "trainyard: interrupted\n";
        return kExitInterrupted;
      }
    }
  }

  int Answer(const json& pod) {
    const json::json_pointer terminated("/status/containerStatuses/0/state/terminated");
    if (!pod.contains(terminated)) {
      return Complain({ErrorCode::kUnavailable, "pod " + ns_ + "/" + name_ + " ended before its program did: " +
                                                    At(pod, "/status/reason") + " " + At(pod, "/status/message")},
                      context_.err);
    }
    const json& end = pod.at(terminated);
    const int code = end.value("exitCode", kExitJobFailed);
    if (At(end, "/reason") == "StartError" || At(end, "/reason") == "ContainerCannotRun") {
      return Complain({ErrorCode::kFailedPrecondition, "the image has no program trainyard (" + At(end, "/message") +
                                                           "): name one that has with --image"},
                      context_.err);
    }
    kube::Call call;
    call.verb = "get";
    call.ns = ns_;
    call.name = name_;
    call.subresource = "log";
    const Result<std::string> log = client_.Send(call);
    if (!log) return Complain(log.error(), context_.err);
    // The log mixes both streams; what the program says on standard error begins with its name.
    std::istringstream lines(*log);
    for (std::string line; std::getline(lines, line);) {
      (line.starts_with("trainyard: ") ? context_.err : context_.out) << line << "\n";
    }
    return code;
  }

  kube::Client client_;
  const InClusterFlags& flags_;
  const InClusterContext& context_;
  std::string ns_, name_;
  bool ended_ = false;
};

}  // namespace

Result<kube::Config> ClusterConfig(const InClusterFlags& flags) {
  if (flags.server.empty()) return kube::LoadConfig(flags.kubeconfig);
  if (!flags.server.starts_with("http://") && !flags.server.starts_with("https://")) {
    return Fail(ErrorCode::kInvalidArgument, "--server: '" + flags.server + "' must begin with http:// or https://");
  }
  kube::Config config;
  config.server = flags.server;
  while (config.server.ends_with('/')) config.server.pop_back();
  return config;
}

int RunInCluster(const kube::Config& config, const InClusterFlags& flags, const std::vector<std::string>& command,
                 const InClusterContext& context) {
  std::vector<std::string> words = command;
  words.insert(words.end(), {flags.job, flags.ns, flags.image});
  for (const std::string& word : words) {
    // With the bad bytes replaced it would name something else.
    const std::string sent = json(word).dump(-1, ' ', false, json::error_handler_t::replace);
    if (json::parse(sent) == word) continue;
    return Complain({ErrorCode::kInvalidArgument, sent + " is not UTF-8: a pod cannot be told such a name"},
                    context.err);
  }
  return PodRun(config, flags, context).Run(command);
}

}  // namespace trainyard::cli
