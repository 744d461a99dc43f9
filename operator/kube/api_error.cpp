#include "operator/kube/api_error.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace trainyard::kube {
namespace {

using nlohmann::json;

constexpr size_t kMaxMessage = 2'000;

// One line, without the control characters that a server may send.
std::string OneLine(std::string text) {
  for (char& c : text) {
    if (std::iscntrl(static_cast<unsigned char>(c)) != 0) c = ' ';
  }
  const size_t last = text.find_last_not_of(' ');
  text.resize(last == std::string::npos ? 0 : last + 1);
  if (text.size() > kMaxMessage) text = text.substr(0, kMaxMessage) + "...";
  return text;
}

std::string TextAt(const json& object, const char* key) {
  if (!object.is_object()) return {};
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// The causes that the message does not tell itself: "field: message; ...".
std::string Causes(const json& status, const std::string& message) {
  const auto details = status.is_object() ? status.find("details") : status.end();
  if (!status.is_object() || details == status.end() || !details->is_object()) return {};
  const auto causes = details->find("causes");
  if (causes == details->end() || !causes->is_array()) return {};
  std::string text;
  for (const json& cause : *causes) {
    const std::string what = TextAt(cause, "message");
    if (what.empty() || message.find(what) != std::string::npos) continue;
    const std::string field = TextAt(cause, "field");
    text += (text.empty() ? "" : "; ") + (field.empty() ? "" : field + ": ") + what;
  }
  return text;
}

bool HasCauses(const json& status) {
  return status.is_object() && status.contains("details") && status["details"].is_object() &&
         status["details"].contains("causes");
}

ErrorCode CodeOf(int status, const std::string& reason, const std::string& message, bool failed_test) {
  switch (status) {
    case 401:  // our own credentials are not taken, whatever the call asks for: a later one may have a new token
      return ErrorCode::kUnavailable;
    case 403:
      return message.find("exceeded quota") != std::string::npos ? ErrorCode::kResourceExhausted
                                                                 : ErrorCode::kPermissionDenied;
    case 404:
      return ErrorCode::kNotFound;
    case 409:
      return reason == "AlreadyExists" ? ErrorCode::kAlreadyExists : ErrorCode::kConflict;
    case 410:
      return ErrorCode::kGone;
    case 422:
      return failed_test ? ErrorCode::kConflict : ErrorCode::kInvalidArgument;
    case 408:
    case 504:
      return ErrorCode::kDeadlineExceeded;
    case 429:
    case 502:
    case 503:
      return ErrorCode::kUnavailable;
    default:
      return status >= 400 && status < 500 ? ErrorCode::kInvalidArgument : ErrorCode::kInternal;
  }
}

}  // namespace

Error ErrorOfAnswer(int status, const std::string& body, const std::string& what, bool json_patch) {
  const json answer = json::parse(body, nullptr, false);
  const bool is_status = !answer.is_discarded() && TextAt(answer, "kind") == "Status";
  const std::string reason = is_status ? TextAt(answer, "reason") : std::string();
  std::string message = is_status ? TextAt(answer, "message") : body.substr(0, 200);
  const std::string causes = is_status ? Causes(answer, message) : std::string();
  if (!causes.empty()) message += (message.empty() ? "" : ": ") + causes;
  if (message.empty()) message = "no reason given";
  // A refused object has causes or names its fields; a patch that could not be applied has neither.
  const bool failed_test = json_patch && !HasCauses(answer);
  return {CodeOf(status, reason, message, failed_test),
          what + ": " + OneLine(message) + " (HTTP " + std::to_string(status) + ")"};
}

Error ErrorOfEvent(const json& status, const std::string& what) {
  int code = 0;
  if (status.is_object() && status.contains("code") && status["code"].is_number_integer()) {
    code = status["code"].get<int>();
  }
  const std::string reason = TextAt(status, "reason");
  const std::string message = OneLine(TextAt(status, "message"));
  const std::string text = what + ": " + (message.empty() ? "the server reports an error without a reason" : message) +
                           (code == 0 ? "" : " (code " + std::to_string(code) + ")");
  if (code == 410 || reason == "Expired" || reason == "Gone") return {ErrorCode::kGone, text};
  if (code == 401) return {ErrorCode::kUnavailable, text};
  if (code == 403) return {ErrorCode::kPermissionDenied, text};
  return {ErrorCode::kInternal, text};
}

std::optional<std::chrono::seconds> RetryAfter(const http::Headers& headers) {
  const auto found = headers.find("Retry-After");
  if (found == headers.end()) return std::nullopt;
  int seconds = -1;
  const std::string& text = found->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || seconds < 0) return std::nullopt;
  return std::chrono::seconds(seconds);
}

}  // namespace trainyard::kube
