// The faults themselves: what is done to a request that a script has chosen. Each returns the `act` of a Fault.
// Thread-safety: pure functions; what they return may be called from several threads at once.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/cluster/faults/exchange.h"

namespace trainyard::faults {

using Act = std::function<void(Exchange&)>;
using When = std::function<bool(const Call&)>;

// ---- which calls; an empty word means any. Events and leases only when they are named.
When On(const std::string& verb, const std::string& resource, const std::string& subresource = "");
When AnyCall();  // but events and leases

// ---- instead of an answer
// A Status object, as the API server writes it, and `headers` besides; the API server is not asked.
Act Answers(int code, const std::string& reason, const std::string& message, http::Headers headers = {});
// Any bytes as a body with status 200.
Act AnswersBody(const std::string& body, const std::string& content_type = "application/json");
Act ResetsAtOnce();  // before a byte is answered, and before the API server is asked
Act NeverAnswers();  // holds the connection open until the operator gives up

// ---- with the answer of the API server
Act LosesAnswer();                                         // it was carried out, but the connection breaks
Act CutsAfter(size_t bytes);                               // so much of the body in an unfinished chunk, then a reset
Act StopsAfter(size_t bytes);                              // the same, then silence on an open connection
Act TricklesHead(Milliseconds per_byte);                   // status line and headers byte by byte
Act Changes(std::function<std::string(std::string)> how);  // the whole body of an answer that is no watch
Act ChangesJson(std::function<void(nlohmann::json&)> how);
Act Asks(const std::string& parameter, const std::string& value);  // with another query

// ---- with the lines of a watch
// What becomes of one line (without its '\n'): the lines sent in its place, and what follows.
struct Lines {
  std::vector<std::string> instead;
  enum class Then { kGoOn, kEnd, kCut, kSilence } then = Then::kGoOn;
};
// `how` is made anew for each stream, so that it may count or keep lines back.
Act Streams(std::function<std::function<Lines(const std::string& line)>()> how);
// These lines come first, then all that the API server says.
Act StartsWith(std::vector<std::string> lines, Lines::Then then = Lines::Then::kGoOn);
// An ERROR event with this Status.
std::string ErrorEvent(int code, const std::string& reason, const std::string& message);

}  // namespace trainyard::faults
