// One connection of the server: reads requests within the limits, answers them, keeps the connection alive. Private to
// the room. Thread-safety: runs on its own strand; created and started by the acceptor only.
#pragma once

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <memory>
#include <optional>
#include <string>

#include "operator/http/server.h"

namespace trainyard::http {

// What all connections share; outlives them.
struct SessionContext {
  ServerOptions options;
  Handler handler;
  std::atomic<int> connections{0};
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(boost::asio::ip::tcp::socket socket, std::shared_ptr<SessionContext> context);
  ~Session();
  auto executor() { return stream_.get_executor(); }
  // Serves requests until the peer or a limit ends the connection.
  void Run();
  // Answers 503 and closes: the server is full.
  void Reject();

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  using Message = boost::beast::http::response<boost::beast::http::string_body>;

  void AwaitRequest(std::chrono::milliseconds patience);
  void ReadHeader();
  void OnHeader(boost::beast::error_code error);
  void ReadBody();
  void OnBody(boost::beast::error_code error);
  void Refuse(boost::beast::error_code error);
  void Write(Response response, bool keep_alive, bool head);
  void Close();

  boost::beast::tcp_stream stream_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  std::shared_ptr<Message> message_;  // kept alive while it is written
  std::shared_ptr<SessionContext> context_;
};

}  // namespace trainyard::http
