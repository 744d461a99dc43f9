// What every Comm must do, as cases that one rank runs and that return "" or what is wrong. The same cases run over
// threads (in_process_comm_test) and over processes with sockets (gloo_comm_test).
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "trainer/dist/comm.h"

namespace trainyard::dist {

struct ConformanceCase {
  const char* name;
  std::string (*run)(Comm& comm);
};

// Cases in which all goes well, for any world size.
const std::vector<ConformanceCase>& HealthyCases();
// Cases in which a call must fail on every rank and in time, for two ranks or more. Each breaks its group.
const std::vector<ConformanceCase>& FailingCases();

// Runs `call` and returns "" when it throws CommError within `limit`, else what happened; the error's text goes to
// `message` and its kind to `kind` when given.
std::string ExpectCommError(const std::function<void()>& call, std::chrono::milliseconds limit,
                            CommError::Kind* kind = nullptr, std::string* message = nullptr);

}  // namespace trainyard::dist
