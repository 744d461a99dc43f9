#include "operator/http/transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "operator/http/server.h"

namespace trainyard::http {
namespace {

using ::testing::HasSubstr;

std::string Url(const Server& server, const std::string& target) {
  return "http://127.0.0.1:" + std::to_string(server.port()) + target;
}

TEST(CpprestTransport, RoundTrip) {
  auto server = Server::Start({}, [](const Request& request) {
    Response response = Response::Json(request.method == "POST" ? 201 : 404, request.url + "|" + request.body);
    response.headers["X-Seen"] = request.Header("authorization") + "|" + request.Header("content-type");
    return response;
  });
  ASSERT_TRUE(server);
  auto transport = NewCpprestTransport();
  Request request;
  request.method = "POST";
  request.url = Url(**server, "/a/b?c=d");
  request.headers = {{"Authorization", "Bearer t"}, {"Content-Type", "application/json"}};
  request.body = std::string("{\"x\":\"\0\xc3\xa9\"}", 11);
  auto response = transport->Send(request);
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_EQ(response->status, 201);
  EXPECT_EQ(response->body, "/a/b?c=d|" + request.body);
  EXPECT_EQ(response->headers["x-seen"], "Bearer t|application/json");
  EXPECT_EQ(response->headers["content-type"], "application/json");

  request = {};
  request.url = Url(**server, "/gone");
  response = transport->Send(request);  // a status is an answer, not an error
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_EQ(response->status, 404);
}

TEST(CpprestTransport, CarriesLargeBodiesBothWays) {
  auto server = Server::Start({}, [](const Request& request) { return Response::Text(200, request.body); });
  ASSERT_TRUE(server);
  Request request;
  request.method = "PUT";
  request.url = Url(**server, "/");
  for (int i = 0; i < 5'000'000; ++i) request.body.push_back(static_cast<char>(i * 31 >> 3));
  auto response = NewCpprestTransport()->Send(request);
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_TRUE(response->body == request.body);
}

TEST(CpprestTransport, SaysWhoCannotBeReached) {
  auto server = Server::Start({}, [](const Request&) { return Response(); });
  ASSERT_TRUE(server);
  Request request;
  request.url = Url(**server, "/");
  (*server)->Stop();
  auto response = NewCpprestTransport()->Send(request);
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(response.error().message, HasSubstr("127.0.0.1:" + std::to_string((*server)->port())));

  request.url = "http://no-such-host.invalid/";
  response = NewCpprestTransport()->Send(request);
  ASSERT_FALSE(response);
  EXPECT_THAT(response.error().message, HasSubstr("no-such-host.invalid"));
}

TEST(CpprestTransport, KeepsItsDeadline) {
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  auto server = Server::Start({}, [released](const Request&) {
    released.wait();
    return Response();
  });
  ASSERT_TRUE(server);
  Request request;
  request.url = Url(**server, "/");
  request.timeout = std::chrono::milliseconds(50);
  auto transport = NewCpprestTransport();
  auto response = transport->Send(request);
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(response.error().message, HasSubstr("50 ms"));
  release.set_value();
  request.timeout = std::chrono::seconds(20);
  EXPECT_TRUE(transport->Send(request)) << "the transport works on after a deadline";
}

TEST(CpprestTransport, RejectsWhatIsNoUrl) {
  auto transport = NewCpprestTransport();
  for (const char* url : {"", "nonsense", "/status", "ftp://127.0.0.1/", "http://", "http://[::1", "http://a b/"}) {
    Request request;
    request.url = url;
    auto response = transport->Send(request);
    ASSERT_FALSE(response) << url;
    EXPECT_EQ(response.error().code, ErrorCode::kInvalidArgument) << url << ": " << response.error().message;
    EXPECT_THAT(response.error().message, HasSubstr(std::string("'") + url + "'"));
  }
  Request request;
  request.url = "http://127.0.0.1/";
  request.method = "BAD METHOD\r\n";
  auto response = transport->Send(request);
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace trainyard::http
