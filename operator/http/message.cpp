#include "operator/http/message.h"

#include <strings.h>

#include <utility>

namespace trainyard::http {

bool HeaderLess::operator()(const std::string& a, const std::string& b) const {
  return strcasecmp(a.c_str(), b.c_str()) < 0;
}

std::string Request::Path() const {
  size_t start = 0;
  const size_t scheme = url.find("://");
  if (scheme != std::string::npos && scheme < url.find('/')) {
    start = url.find('/', scheme + 3);
    if (start == std::string::npos) return "/";
  }
  const size_t end = url.find_first_of("?#", start);
  return url.substr(start, end == std::string::npos ? end : end - start);
}

std::string Request::Header(const std::string& name) const {
  const auto it = headers.find(name);
  return it == headers.end() ? std::string() : it->second;
}

Response Response::Text(int status, std::string text) {
  return {status, {{"Content-Type", "text/plain; charset=utf-8"}}, std::move(text)};
}

Response Response::Json(int status, std::string json) {
  return {status, {{"Content-Type", "application/json"}}, std::move(json)};
}

}  // namespace trainyard::http
