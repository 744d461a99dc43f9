// What node rank 0's launcher serves: GET /status (the trainer's status.json with the launcher's view inside), GET
// /healthz, POST /restart and POST /stop for the bearer of the job's token. Thread-safety: as http::Handler.
#pragma once

#include <string>

#include "operator/http/message.h"
#include "trainer/launch/plan.h"
#include "trainer/launch/supervisor.h"

namespace trainyard::launch {

// Answers one request.
http::Response Answer(const Plan& plan, Supervisor& supervisor, const http::Request& request);

// The status JSON of the contract as text: `trainer_status` (text of status.json, "" while there is none) with
// "launcher": {"state", "nodeRank", "ranks": [{"rank", "pid", "exitCode"}]}. A status of an earlier round, or one that
// is no JSON, does not hide that the ranks are starting. PURE.
std::string StatusJson(const Plan& plan, const View& view, const std::string& trainer_status);

}  // namespace trainyard::launch
