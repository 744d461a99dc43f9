// One request as the proxy saw it, in the words of RBAC, and what became of it. Thread-safety: plain values.
#pragma once

#include <chrono>
#include <string>

#include "operator/http/message.h"

namespace trainyard::faults {

using Moment = std::chrono::steady_clock::time_point;

struct Call {
  std::string verb;  // get, list, watch, create, update, patch, delete, deletecollection
  std::string resource;
  std::string subresource;
  std::string ns;
  std::string name;
  std::string target;  // path and query as it came
  std::string user_agent;
  std::string body;
  Moment when;        // its head was read
  int status = 0;     // what the operator was answered; 0: nothing yet, or never
  int upstream = 0;   // what the API server answered; 0: it was not asked, or did not answer
  std::string fault;  // name of the one that was applied; empty: none
  bool done = false;

  bool Mutates() const { return verb != "get" && verb != "list" && verb != "watch"; }
  bool Is(const std::string& a_verb, const std::string& a_resource, const std::string& a_subresource = "") const {
    return verb == a_verb && resource == a_resource && subresource == a_subresource;
  }
  // Value of a query parameter, as it stands in the target; "" when absent.
  std::string Query(const std::string& parameter) const;
};

Call ParseCall(const std::string& method, const std::string& target);
// The target with a query parameter set to `value`, or added.
std::string WithQuery(const std::string& target, const std::string& parameter, const std::string& value);

}  // namespace trainyard::faults
