#include "operator/local/pod_status.h"

#include <utility>

#include "operator/local/object_rules.h"
#include "operator/local/pod_process.h"

namespace trainyard::local {
namespace {

using nlohmann::json;

void SetReady(json& pod, bool ready, const std::string& reason, TimePoint now) {
  for (const char* type : {"ContainersReady", "Ready"}) {
    SetCondition(pod, type, ready ? "True" : "False", reason, "", now);
  }
}

// The status of the one container, with `state` as its state.
void SetContainer(json& pod, json state, bool ready, bool started) {
  const json& container = MainContainer(pod);
  const std::string image = container.contains("image") && container["image"].is_string()
                                ? container["image"].get<std::string>()
                                : std::string();
  pod["status"]["containerStatuses"] = json::array({{{"name", container["name"]},
                                                     {"image", image},
                                                     {"imageID", ""},
                                                     {"ready", ready},
                                                     {"started", started},
                                                     {"restartCount", 0},
                                                     {"state", std::move(state)}}});
}

}  // namespace

void SetWaiting(json& pod, const std::string& reason, const std::string& message, TimePoint now) {
  pod["status"]["phase"] = "Pending";
  SetContainer(pod, {{"waiting", {{"reason", reason}, {"message", message}}}}, false, false);
  SetReady(pod, false, "ContainersNotReady", now);
}

void SetRunning(json& pod, TimePoint now) {
  json& status = pod["status"];
  status["phase"] = "Running";
  status["hostIP"] = kPodIp;
  status["podIP"] = kPodIp;
  status["podIPs"] = json::array({{{"ip", kPodIp}}});
  status["startTime"] = FormatTime(now);
  SetContainer(pod, {{"running", {{"startedAt", FormatTime(now)}}}}, true, true);
  SetCondition(pod, "Initialized", "True", "", "", now);
  SetReady(pod, true, "", now);
}

void SetTerminated(json& pod, const ExitStatus& exit, std::string reason, const std::string& message, TimePoint now) {
  if (reason.empty()) reason = exit.exit_code == 0 ? "Completed" : "Error";
  json terminated = {{"exitCode", exit.exit_code},
                     {"reason", reason},
                     {"startedAt", pod["status"].value("startTime", json(FormatTime(now)))},
                     {"finishedAt", FormatTime(now)}};
  if (exit.signal != 0) terminated["signal"] = exit.signal;
  if (!message.empty()) terminated["message"] = message;
  pod["status"]["phase"] = exit.exit_code == 0 ? "Succeeded" : "Failed";
  SetContainer(pod, {{"terminated", std::move(terminated)}}, false, false);
  SetReady(pod, false, exit.exit_code == 0 ? "PodCompleted" : "PodFailed", now);
}

}  // namespace trainyard::local
