#include "trainer/launch/status_server.h"

#include <nlohmann/json.hpp>

#include "operator/base/files.h"
#include "trainer/contract/contract.h"

namespace trainyard::launch {
namespace {

// Takes as long whatever the strings hold, so that a token cannot be found byte by byte.
bool SameSecret(const std::string& a, const std::string& b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i] ^ (b.empty() ? 0 : b[i % b.size()]));
  }
  return difference == 0;
}

http::Response Post(const Plan& plan, Supervisor& supervisor, const http::Request& request) {
  if (plan.token.empty()) return http::Response::Text(403, "refused: this job has no token\n");
  if (!SameSecret(request.Header("Authorization"), "Bearer " + plan.token)) {
    return http::Response::Text(401, "refused: the bearer token is missing or wrong\n");
  }
  if (request.Path() == "/stop") {
    supervisor.RequestStop();
  } else if (Status restart = supervisor.RequestRestart(); !restart) {
    return http::Response::Text(409, restart.error().message + "\n");
  }
  return http::Response::Text(202, "accepted\n");
}

}  // namespace

http::Response Answer(const Plan& plan, Supervisor& supervisor, const http::Request& request) {
  const std::string path = request.Path();
  const bool get = request.method == "GET" || request.method == "HEAD";
  if (path == "/restart" || path == "/stop") {
    if (request.method == "POST") return Post(plan, supervisor, request);
  } else if (path == "/healthz") {
    if (get) return http::Response::Text(200, "ok\n");
  } else if (path == "/status") {
    if (get) {
      const auto file = ReadFile(plan.run_dir + "/" + std::string(contract::kStatusFile));
      return http::Response::Json(200, StatusJson(plan, supervisor.Snapshot(), file.value_or("")));
    }
  } else {
    return http::Response::Text(404, "not found: there are /status, /healthz, /restart and /stop\n");
  }
  return http::Response::Text(405, request.method + " is not for " + path + "\n");
}

std::string StatusJson(const Plan& plan, const View& view, const std::string& trainer_status) {
  nlohmann::json status = nlohmann::json::parse(trainer_status, nullptr, /*allow_exceptions=*/false);
  if (!status.is_object()) status = nlohmann::json::object();
  const nlohmann::json written_by = status.value("round", nlohmann::json());
  if (!written_by.is_number_integer() || written_by != view.round) {
    status["phase"] = contract::phase::kStarting;
  } else if (view.state == "Stopping" && status.value("phase", nlohmann::json()) == contract::phase::kTraining) {
    status["phase"] = contract::phase::kStopping;
  }
  status["contract"] = contract::kVersion;
  status["jobUid"] = plan.job_uid;
  status["attempt"] = plan.attempt;
  status["round"] = view.round;
  status["worldSize"] = plan.world_size();
  nlohmann::json ranks = nlohmann::json::array();
  for (const View::Rank& rank : view.ranks) {
    nlohmann::json entry = {{"rank", rank.rank}};
    if (rank.exit_code) {
      entry["exitCode"] = *rank.exit_code;
    } else {
      entry["pid"] = rank.pid;
    }
    ranks.push_back(std::move(entry));
  }
  status["launcher"] = {{"state", view.state}, {"nodeRank", plan.node_rank}, {"ranks", std::move(ranks)}};
  return status.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace trainyard::launch
