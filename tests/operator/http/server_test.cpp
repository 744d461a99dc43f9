#include "operator/http/server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace trainyard::http {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kPatienceMs = 20'000;

// A peer that sends exactly the bytes it is told to.
class RawPeer {
 public:
  explicit RawPeer(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~RawPeer() { close(fd_); }
  RawPeer(const RawPeer&) = delete;

  bool connected() const { return connected_; }
  void Send(const std::string& bytes) {
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t n = send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return;  // refused in the middle, which is what some tests want
      sent += static_cast<size_t>(n);
    }
  }
  // Reads until the server closes, or until `until` was seen. "(timeout)" is appended when neither happens.
  std::string Read(const std::string& until = "") {
    std::string got;
    char buffer[4096];
    while (until.empty() || got.find(until) == std::string::npos) {
      pollfd waiting{fd_, POLLIN, 0};
      if (poll(&waiting, 1, kPatienceMs) <= 0) return got + "(timeout)";
      const ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
      if (n <= 0) return got;
      got.append(buffer, static_cast<size_t>(n));
    }
    return got;
  }

 private:
  int fd_;
  bool connected_ = false;
};

Response Echo(const Request& request) {
  if (request.Path() == "/throw") throw std::runtime_error("no such luck");
  return Response::Text(200, request.method + " " + request.Path() + " [" + request.body + "]");
}

std::unique_ptr<Server> Serve(ServerOptions options = {}, Handler handler = Echo) {
  auto server = Server::Start(std::move(options), std::move(handler));
  EXPECT_TRUE(server) << server.error().message;
  return std::move(*server);
}

std::string Ask(int port, const std::string& bytes) {
  RawPeer peer(port);
  EXPECT_TRUE(peer.connected());
  peer.Send(bytes);
  return peer.Read();
}

constexpr const char* kGet = "GET /a?b=1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

TEST(Server, AnswersAndKeepsTheConnection) {
  auto server = Serve();
  RawPeer peer(server->port());
  peer.Send("POST /one HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc");
  EXPECT_THAT(peer.Read("[abc]"), HasSubstr("POST /one [abc]"));
  peer.Send("GET /two HTTP/1.1\r\nHost: x\r\n\r\nGET /three HTTP/1.1\r\nHost: x\r\n\r\n");  // pipelined
  const std::string both = peer.Read("/three []");
  EXPECT_THAT(both, HasSubstr("GET /two []"));
  EXPECT_THAT(both, HasSubstr("GET /three []"));
}

TEST(Server, AcceptsChunksAndExpectations) {
  auto server = Serve();
  EXPECT_THAT(Ask(server->port(),
                  "POST /c HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
                  "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"),
              HasSubstr("[abcde]"));
  RawPeer peer(server->port());
  peer.Send("POST /e HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(peer.Read("\r\n\r\n"), StartsWith("HTTP/1.1 100"));
  peer.Send("ok");
  EXPECT_THAT(peer.Read(), HasSubstr("[ok]"));
}

TEST(Server, AnswersHeadWithoutBody) {
  auto server = Serve();
  const std::string answer = Ask(server->port(), "HEAD /h HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer, HasSubstr("Content-Length: 10\r\n"));
  EXPECT_THAT(answer, ::testing::EndsWith("\r\n\r\n"));
}

TEST(Server, OutlivesMalformedRequests) {
  auto server = Serve();
  const std::vector<std::string> attacks = {
      "\r\n\r\nnonsense\r\n\r\n",
      "GET\r\n\r\n",
      "GET / HTTP/9.9\r\n\r\n",
      std::string("\0\1\2\3\xff\xfe\r\n\r\n", 10),
      "GET / HTTP/1.1\r\nbad header\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZZZ\r\nabc\r\n",
      "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nabc\r\n",
  };
  for (const std::string& attack : attacks) {
    const std::string answer = Ask(server->port(), attack);
    EXPECT_THAT(answer, ::testing::Not(HasSubstr("(timeout)"))) << attack;
    EXPECT_THAT(answer, ::testing::Not(HasSubstr(" 200 "))) << attack;
    EXPECT_THAT(Ask(server->port(), kGet), StartsWith("HTTP/1.1 200")) << "after: " << attack;
  }
}

TEST(Server, HandlerExceptionBecomes500) {
  std::string logged;
  ServerOptions options;
  options.log = [&](const std::string& line) { logged = line; };
  auto server = Serve(options);
  EXPECT_THAT(Ask(server->port(), "GET /throw HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
              StartsWith("HTTP/1.1 500"));
  server->Stop();
  EXPECT_THAT(logged, HasSubstr("no such luck"));
}

TEST(Server, LimitsHeadersAndBodies) {
  ServerOptions options;
  options.max_body_bytes = 1000;
  options.max_header_bytes = 500;
  auto server = Serve(options);
  const std::string head = "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
  EXPECT_THAT(Ask(server->port(), head + "Content-Length: 1000\r\n\r\n" + std::string(1000, 'x')),
              StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Ask(server->port(), head + "Content-Length: 1001\r\n\r\n"), StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(Ask(server->port(), head + "Transfer-Encoding: chunked\r\n\r\n5dc\r\n" + std::string(1500, 'x')),
              StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(Ask(server->port(), head + "Long: " + std::string(600, 'x') + "\r\n\r\n"), StartsWith("HTTP/1.1 431"));
}

TEST(Server, ClosesSilentAndSlowPeers) {
  ServerOptions options;
  options.read_timeout = std::chrono::milliseconds(50);
  options.idle_timeout = std::chrono::milliseconds(50);
  auto server = Serve(options);
  EXPECT_EQ(Ask(server->port(), ""), "");
  EXPECT_EQ(Ask(server->port(), "GET / HT"), "");
  EXPECT_THAT(Ask(server->port(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n"), HasSubstr("GET / []"));  // idle afterwards
}

TEST(Server, RefusesConnectionsBeyondTheLimit) {
  ServerOptions options;
  options.max_connections = 1;
  auto server = Serve(options);
  {
    RawPeer first(server->port());
    first.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_THAT(first.Read("[]"), StartsWith("HTTP/1.1 200"));
    EXPECT_THAT(Ask(server->port(), kGet), StartsWith("HTTP/1.1 503"));
  }
  std::string answer;
  do answer = Ask(server->port(), kGet);  // the first connection's end reaches the server in its own time
  while (answer.rfind("HTTP/1.1 503", 0) == 0);
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
}

TEST(Server, NamesThePortInUse) {
  auto server = Serve();
  ServerOptions options;
  options.port = server->port();
  auto second = Server::Start(options, Echo);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kAlreadyExists);
  EXPECT_THAT(second.error().message, HasSubstr("127.0.0.1:" + std::to_string(server->port())));
  server->Stop();
  EXPECT_TRUE(Server::Start(options, Echo)) << "the port is free once the first server has stopped";
}

TEST(Server, RejectsHostsAndPortsThatCannotBe) {
  ServerOptions options;
  options.host = "no-such-host.invalid";
  auto server = Server::Start(options, Echo);
  ASSERT_FALSE(server);
  EXPECT_THAT(server.error().message, HasSubstr("no-such-host.invalid"));
  options.host = "127.0.0.1";
  options.port = 70000;
  server = Server::Start(options, Echo);
  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().code, ErrorCode::kInvalidArgument);
}

TEST(Server, ServesAllInterfacesWithoutHost) {
  ServerOptions options;
  options.host = "";
  auto server = Serve(options);
  EXPECT_THAT(Ask(server->port(), kGet), StartsWith("HTTP/1.1 200"));
}

TEST(Server, StopsWithConnectionsOpenAndRequestsHalfRead) {
  std::atomic<int> calls{0};
  ServerOptions options;
  options.threads = 2;
  auto server = Serve(options, [&](const Request&) {
    ++calls;
    return Response::Text(200, "done");
  });
  RawPeer idle(server->port()), half(server->port());
  idle.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(idle.Read("done"), HasSubstr("done"));
  half.Send("POST / HTTP/1.1\r\nContent-Le");
  server->Stop();
  server.reset();
  EXPECT_EQ(half.Read(), "");
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace trainyard::http
