// What travels over HTTP on either side: the server hands a Request to its handler, a Transport sends one.
// Thread-safety: plain values.
#pragma once

#include <chrono>
#include <map>
#include <string>

namespace trainyard::http {

// Orders header names without regard to case (RFC 9110, 5.1).
struct HeaderLess {
  bool operator()(const std::string& a, const std::string& b) const;
};
using Headers = std::map<std::string, std::string, HeaderLess>;

struct Request {
  std::string method = "GET";
  // Client: absolute URL, "http://127.0.0.1:8471/status". Server: the request target, "/status?full=1".
  std::string url;
  Headers headers;
  std::string body;
  // Client: from the call until the last byte of the answer. The server ignores it.
  std::chrono::milliseconds timeout{30'000};

  // The target without its query: "/status".
  std::string Path() const;
  // Value of a header, or "" when it is absent.
  std::string Header(const std::string& name) const;
};

struct Response {
  int status = 200;
  Headers headers;
  std::string body;

  static Response Text(int status, std::string text);
  static Response Json(int status, std::string json);
};

}  // namespace trainyard::http
