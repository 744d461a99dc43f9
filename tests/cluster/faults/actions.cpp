#include "tests/cluster/faults/actions.h"

#include <thread>

#include <fmt/format.h>

namespace trainyard::faults {

using nlohmann::json;

namespace {

json StatusObject(int code, const std::string& reason, const std::string& message) {
  return {{"kind", "Status"},    {"apiVersion", "v1"}, {"metadata", json::object()},
          {"status", "Failure"}, {"message", message}, {"reason", reason},
          {"code", code}};
}

http::Headers TypeOf(const Head& head) { return {{"Content-Type", head.Header("Content-Type")}}; }

// Sends the first `bytes` of the answer inside a chunk that promises one more than it brings.
bool SendPart(Exchange& exchange, size_t bytes) {
  const std::optional<Head> head = exchange.Forward();
  if (!head || !exchange.SendHead(head->StatusCode(), TypeOf(*head), std::nullopt)) return false;
  std::string body;
  while (body.size() < bytes) {
    const std::optional<std::string> piece = exchange.Next();
    if (!piece) break;
    body += *piece;
  }
  body.resize(std::min(body.size(), bytes));
  return exchange.SendRaw(fmt::format("{:x}\r\n", body.size() + 1) + body);
}

bool Follow(Exchange& exchange, Lines::Then then) {
  switch (then) {
    case Lines::Then::kGoOn:
      return true;
    case Lines::Then::kEnd:
      exchange.EndChunks();
      return false;
    case Lines::Then::kCut:
      exchange.Reset();
      return false;
    case Lines::Then::kSilence:
      exchange.Hang();
      return false;
  }
  return false;
}

// Hands the lines of a watch to `how` and the result to the operator.
void Filter(Exchange& exchange, const std::function<Lines(const std::string&)>& how) {
  std::string rest;
  while (const std::optional<std::string> piece = exchange.Next()) {
    rest += *piece;
    for (size_t end = rest.find('\n'); end != std::string::npos; end = rest.find('\n')) {
      const Lines lines = how(rest.substr(0, end));
      rest.erase(0, end + 1);
      for (const std::string& line : lines.instead) {
        if (!exchange.SendChunk(line + "\n")) return;
      }
      if (!Follow(exchange, lines.then)) return;
    }
  }
  if (!exchange.closed()) exchange.EndChunks();
}

}  // namespace

When On(const std::string& verb, const std::string& resource, const std::string& subresource) {
  return [=](const Call& call) {
    const bool quiet = resource.empty() && (call.resource == "events" || call.resource == "leases");
    return !quiet && (verb.empty() || call.verb == verb) && (resource.empty() || call.resource == resource) &&
           (subresource.empty() || call.subresource == subresource);
  };
}

When AnyCall() { return On("", ""); }

Act Answers(int code, const std::string& reason, const std::string& message, http::Headers headers) {
  return [=](Exchange& exchange) { exchange.Answer(code, StatusObject(code, reason, message).dump(), headers); };
}

Act AnswersBody(const std::string& body, const std::string& content_type) {
  return [=](Exchange& exchange) { exchange.Answer(200, body, {{"Content-Type", content_type}}); };
}

Act ResetsAtOnce() {
  return [](Exchange& exchange) { exchange.Reset(); };
}

Act NeverAnswers() {
  return [](Exchange& exchange) { exchange.Hang(); };
}

Act LosesAnswer() {
  return [](Exchange& exchange) {
    if (exchange.Forward()) exchange.Rest();
    exchange.Reset();
  };
}

Act CutsAfter(size_t bytes) {
  return [=](Exchange& exchange) {
    SendPart(exchange, bytes);
    exchange.Reset();
  };
}

Act StopsAfter(size_t bytes) {
  return [=](Exchange& exchange) {
    if (SendPart(exchange, bytes)) exchange.Hang();
    exchange.Reset();
  };
}

Act TricklesHead(Milliseconds per_byte) {
  return [=](Exchange& exchange) {
    const std::optional<Head> head = exchange.Forward();
    if (!head) return exchange.Reset();
    const std::string body = exchange.Rest();
    const std::string text = fmt::format("HTTP/1.1 {} Answer\r\nContent-Type: {}\r\nContent-Length: {}\r\n\r\n",
                                         head->StatusCode(), head->Header("Content-Type"), body.size());
    for (const char byte : text) {
      if (!exchange.SendRaw(std::string(1, byte))) return;
      std::this_thread::sleep_for(per_byte);
    }
    exchange.SendRaw(body);
  };
}

Act Changes(std::function<std::string(std::string)> how) {
  return [how = std::move(how)](Exchange& exchange) {
    const std::optional<Head> head = exchange.Forward();
    if (!head) return exchange.Reset();
    exchange.Answer(head->StatusCode(), how(exchange.Rest()), TypeOf(*head));
  };
}

Act ChangesJson(std::function<void(json&)> how) {
  return Changes([how = std::move(how)](const std::string& body) {
    json object = json::parse(body);
    how(object);
    return object.dump();
  });
}

Act Asks(const std::string& parameter, const std::string& value) {
  return [=](Exchange& exchange) {
    const std::optional<Head> head = exchange.Forward(WithQuery(exchange.call().target, parameter, value));
    if (!head) return exchange.Reset();
    exchange.Answer(head->StatusCode(), exchange.Rest(), TypeOf(*head));
  };
}

Act Streams(std::function<std::function<Lines(const std::string&)>()> how) {
  return [how = std::move(how)](Exchange& exchange) {
    const std::optional<Head> head = exchange.Forward();
    if (!head) return exchange.Reset();
    if (exchange.SendHead(head->StatusCode(), TypeOf(*head), std::nullopt)) Filter(exchange, how());
  };
}

Act StartsWith(std::vector<std::string> lines, Lines::Then then) {
  return [=](Exchange& exchange) {
    const std::optional<Head> head = exchange.Forward();
    if (!head || !exchange.SendHead(head->StatusCode(), TypeOf(*head), std::nullopt)) return exchange.Reset();
    for (const std::string& line : lines) {
      if (!exchange.SendChunk(line + "\n")) return;
    }
    if (Follow(exchange, then)) Filter(exchange, [](const std::string& line) { return Lines{{line}}; });
  };
}

std::string ErrorEvent(int code, const std::string& reason, const std::string& message) {
  return json({{"type", "ERROR"}, {"object", StatusObject(code, reason, message)}}).dump();
}

}  // namespace trainyard::faults
