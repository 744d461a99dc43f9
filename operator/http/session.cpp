#include "operator/http/session.h"

#include <exception>
#include <utility>

namespace trainyard::http {
namespace {

namespace beast = boost::beast;
namespace bhttp = boost::beast::http;

constexpr size_t kReadChunk = 4096;

Request FromBeast(const bhttp::request<bhttp::string_body>& message) {
  Request request;
  request.method = std::string(message.method_string());
  request.url = std::string(message.target());
  for (const auto& field : message) {
    request.headers[std::string(field.name_string())] = std::string(field.value());
  }
  request.body = message.body();
  return request;
}

}  // namespace

Session::Session(boost::asio::ip::tcp::socket socket, std::shared_ptr<SessionContext> context)
    : stream_(std::move(socket)), context_(std::move(context)) {
  context_->connections.fetch_add(1);
}

Session::~Session() { context_->connections.fetch_sub(1); }

void Session::Run() { AwaitRequest(context_->options.read_timeout); }

void Session::Reject() {
  stream_.expires_after(context_->options.read_timeout);
  Write(Response::Text(503, "too many connections\n"), false, false);
}

// Waits for the first byte, so that a quiet connection and a slow request have different patience.
void Session::AwaitRequest(std::chrono::milliseconds patience) {
  if (buffer_.size() > 0) return ReadHeader();  // pipelined
  stream_.expires_after(patience);
  stream_.async_read_some(buffer_.prepare(kReadChunk),
                          [self = shared_from_this()](beast::error_code error, size_t bytes) {
                            if (error) return self->Close();
                            self->buffer_.commit(bytes);
                            self->ReadHeader();
                          });
}

void Session::ReadHeader() {
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(context_->options.max_header_bytes));
  parser_->body_limit(context_->options.max_body_bytes);
  stream_.expires_after(context_->options.read_timeout);
  bhttp::async_read_header(stream_, buffer_, *parser_,
                           [self = shared_from_this()](beast::error_code error, size_t) { self->OnHeader(error); });
}

void Session::OnHeader(beast::error_code error) {
  if (error) return Refuse(error);
  if (!beast::iequals(parser_->get()[bhttp::field::expect], "100-continue")) return ReadBody();
  message_ = std::make_shared<Message>(bhttp::status::continue_, 11);
  bhttp::async_write(stream_, *message_, [self = shared_from_this()](beast::error_code write_error, size_t) {
    if (write_error) return self->Close();
    self->ReadBody();
  });
}

void Session::ReadBody() {
  bhttp::async_read(stream_, buffer_, *parser_,
                    [self = shared_from_this()](beast::error_code error, size_t) { self->OnBody(error); });
}

void Session::OnBody(beast::error_code error) {
  if (error) return Refuse(error);
  const auto& message = parser_->get();
  const bool keep_alive = message.keep_alive();
  const bool head = message.method() == bhttp::verb::head;
  Response response;
  try {
    response = context_->handler(FromBeast(message));
  } catch (const std::exception& failure) {  // the handler is the caller's: its exceptions stop here
    if (context_->options.log) {
      context_->options.log("handler of " + std::string(message.target()) + " failed: " + failure.what());
    }
    response = Response::Text(500, "internal error\n");
  }
  Write(std::move(response), keep_alive, head);
}

// Answers what cannot be read, where there still is someone to answer, and closes.
void Session::Refuse(beast::error_code error) {
  if (error == bhttp::error::header_limit) return Write(Response::Text(431, "headers too large\n"), false, false);
  if (error == bhttp::error::body_limit) return Write(Response::Text(413, "body too large\n"), false, false);
  const bool parse_error = error.category() == bhttp::make_error_code(bhttp::error::bad_method).category() &&
                           error != bhttp::error::end_of_stream && error != bhttp::error::partial_message;
  if (parse_error) return Write(Response::Text(400, "malformed request: " + error.message() + "\n"), false, false);
  Close();
}

void Session::Write(Response response, bool keep_alive, bool head) {
  message_ = std::make_shared<Message>();
  message_->version(11);
  message_->result(static_cast<unsigned>(response.status));
  for (const auto& [name, value] : response.headers) message_->set(name, value);
  message_->keep_alive(keep_alive);
  message_->content_length(response.body.size());
  if (!head) message_->body() = std::move(response.body);
  stream_.expires_after(context_->options.read_timeout);
  bhttp::async_write(stream_, *message_, [self = shared_from_this(), keep_alive](beast::error_code error, size_t) {
    if (error || !keep_alive) return self->Close();
    self->AwaitRequest(self->context_->options.idle_timeout);
  });
}

void Session::Close() {
  beast::error_code ignored;  // the peer may be gone already
  stream_.socket().shutdown(boost::asio::ip::tcp::socket::shutdown_send, ignored);
}

}  // namespace trainyard::http
