// What the API server's refusals mean to us. Thread-safety: pure functions.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "operator/base/error.h"
#include "operator/http/message.h"

namespace trainyard::kube {

// The error of an answer whose status is not 2xx; its body is usually a `kind: Status`. `what` opens the message:
// "create pods ns/name". `json_patch`: the request was one, whose failed "test" the server calls unprocessable (422)
// and we a conflict.
Error ErrorOfAnswer(int status, const std::string& body, const std::string& what, bool json_patch);

// The error of an ERROR event in a watch, whose object is a Status. Code 410 is kGone.
Error ErrorOfEvent(const nlohmann::json& status, const std::string& what);

// The Retry-After header in seconds, where it is there and makes sense.
std::optional<std::chrono::seconds> RetryAfter(const http::Headers& headers);

}  // namespace trainyard::kube
