#include "tests/cluster/faults/call.h"

#include <sstream>
#include <vector>

namespace trainyard::faults {
namespace {

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) {
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

std::string VerbOf(const std::string& method, bool named, bool watch) {
  if (method == "GET") return named ? "get" : watch ? "watch" : "list";
  if (method == "POST") return "create";
  if (method == "PUT") return "update";
  if (method == "PATCH") return "patch";
  return named ? "delete" : "deletecollection";
}

}  // namespace

std::string Call::Query(const std::string& parameter) const {
  const size_t question = target.find('?');
  if (question == std::string::npos) return "";
  for (const std::string& part : Split(target.substr(question + 1), '&')) {
    if (part.starts_with(parameter + "=")) return part.substr(parameter.size() + 1);
  }
  return "";
}

Call ParseCall(const std::string& method, const std::string& target) {
  Call call;
  call.target = target;
  std::vector<std::string> parts = Split(target.substr(0, target.find('?')), '/');
  // /api/v1/... or /apis/GROUP/VERSION/..., then [namespaces/NS/] PLURAL [/NAME [/SUBRESOURCE]]
  size_t at = parts.empty() ? 0 : parts[0] == "api" ? 2 : parts[0] == "apis" ? 3 : parts.size();
  if (at + 2 < parts.size() && parts[at] == "namespaces") {
    call.ns = parts[at + 1];
    at += 2;
  }
  if (at < parts.size()) call.resource = parts[at];
  if (at + 1 < parts.size()) call.name = parts[at + 1];
  if (at + 2 < parts.size()) call.subresource = parts[at + 2];
  const std::string watch = call.Query("watch");
  call.verb = VerbOf(method, !call.name.empty(), watch == "true" || watch == "1");
  return call;
}

std::string WithQuery(const std::string& target, const std::string& parameter, const std::string& value) {
  const size_t question = target.find('?');
  std::string changed = target.substr(0, question) + "?";
  if (question != std::string::npos) {
    for (const std::string& part : Split(target.substr(question + 1), '&')) {
      if (!part.starts_with(parameter + "=")) changed += part + "&";
    }
  }
  return changed + parameter + "=" + value;
}

}  // namespace trainyard::faults
