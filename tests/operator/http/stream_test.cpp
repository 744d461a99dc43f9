// Answers that are read while they come, and the transport for strangers.
#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/http/transport.h"
#include "tests/operator/http/raw_server.h"

namespace trainyard::http {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr milliseconds kPatience{20'000};

// Reads until `size` bytes are there, the end or an error.
Result<std::string> ReadSome(Stream& stream, size_t size) {
  std::string text;
  while (text.size() < size) {
    Result<Chunk> chunk = stream.Read(kPatience);
    if (!chunk) return Fail(chunk.error());
    text += chunk->bytes;
    if (chunk->end || chunk->bytes.empty()) break;
  }
  return text;
}

Request Get(const RawServer& server, const std::string& target = "/") {
  Request request;
  request.url = server.url(target);
  request.timeout = kPatience;
  return request;
}

TEST(CpprestStream, BringsBytesWhenTheyCome) {
  std::promise<void> more;
  RawServer server([&, go = more.get_future().share()](RawConnection& connection, int) {
    connection.ReadRequest();
    connection.StartChunks();
    connection.Chunk("first\n");
    go.wait();
    connection.Chunk("sec");
    connection.Chunk("ond\n");
    connection.EndChunks();
  });
  auto transport = NewCpprestTransport();
  auto stream = transport->Open(Get(server));
  ASSERT_TRUE(stream) << stream.error().message;
  EXPECT_EQ((*stream)->status(), 200);
  EXPECT_EQ((*stream)->headers().at("content-type"), "application/json");
  EXPECT_EQ(ReadSome(**stream, 6).value(), "first\n");
  const Result<Chunk> nothing = (*stream)->Read(milliseconds(20));
  ASSERT_TRUE(nothing);
  EXPECT_EQ(nothing->bytes, "");
  EXPECT_FALSE(nothing->end);
  more.set_value();
  EXPECT_EQ(ReadSome(**stream, 7).value(), "second\n");
  const Result<Chunk> last = (*stream)->Read(kPatience);
  ASSERT_TRUE(last) << last.error().message;
  EXPECT_TRUE(last->end);
}

TEST(CpprestStream, CarriesManyMegabytes) {
  std::string sent;
  for (int i = 0; i < 200'000; ++i) sent += std::to_string(i) + "\n";
  RawServer server([&](RawConnection& connection, int) {
    connection.ReadRequest();
    connection.StartChunks();
    for (int i = 0; i < 5; ++i) connection.Chunk(sent);
    connection.EndChunks();
  });
  auto transport = NewCpprestTransport();
  auto stream = transport->Open(Get(server));
  ASSERT_TRUE(stream) << stream.error().message;
  const Result<std::string> got = ReadSome(**stream, std::string::npos);
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_TRUE(*got == sent + sent + sent + sent + sent);
}

TEST(CpprestStream, AnAnswerThatBreaksOffIsNoEnd) {
  RawServer server([](RawConnection& connection, int) {
    connection.ReadRequest();
    connection.StartChunks();
    connection.Write("ff\r\nonly a part");
  });
  auto transport = NewCpprestTransport();
  auto stream = transport->Open(Get(server));
  ASSERT_TRUE(stream) << stream.error().message;
  const Result<std::string> got = ReadSome(**stream, 255);
  ASSERT_FALSE(got) << *got;
  EXPECT_EQ(got.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(got.error().message, HasSubstr("broke off"));
}

TEST(CpprestStream, StopWakesAReader) {
  RawServer server([](RawConnection& connection, int) {
    connection.ReadRequest();
    connection.StartChunks();
    connection.Chunk("x");
    connection.AwaitClient();
  });
  auto transport = NewCpprestTransport();
  auto stream = transport->Open(Get(server));
  ASSERT_TRUE(stream) << stream.error().message;
  ASSERT_TRUE(ReadSome(**stream, 1));
  std::thread stopper([&] { (*stream)->Stop(); });
  const Result<Chunk> chunk = (*stream)->Read(milliseconds(60'000));
  stopper.join();
  ASSERT_FALSE(chunk);
  EXPECT_THAT(chunk.error().message, HasSubstr("stopped"));
}

TEST(CpprestStream, AConnectionOnWhichNothingMovesIsGivenUp) {
  RawServer server([](RawConnection& connection, int) {
    connection.ReadRequest();
    connection.StartChunks();
    connection.Chunk("x");
    connection.AwaitClient();
  });
  TransportOptions options;
  options.idle_timeout = milliseconds(1'000);  // the library counts in seconds
  auto transport = NewCpprestTransport(options);
  auto stream = transport->Open(Get(server));
  ASSERT_TRUE(stream) << stream.error().message;
  ASSERT_TRUE(ReadSome(**stream, 1));
  const Result<Chunk> chunk = (*stream)->Read(kPatience);
  ASSERT_FALSE(chunk) << "the stream should have ended";
  EXPECT_EQ(chunk.error().code, ErrorCode::kUnavailable);
}

TEST(CpprestStream, HeadersThatDoNotComeMissTheDeadline) {
  RawServer server([](RawConnection& connection, int) {
    connection.ReadRequest();
    connection.AwaitClient();
  });
  auto transport = NewCpprestTransport();
  Request request = Get(server);
  request.timeout = milliseconds(50);
  const auto stream = transport->Open(request);
  ASSERT_FALSE(stream);
  EXPECT_EQ(stream.error().code, ErrorCode::kDeadlineExceeded);
}

// ---- strangers

TEST(PlainTransport, RoundTrip) {
  std::string seen;
  RawServer server([&](RawConnection& connection, int) {
    seen = connection.ReadRequest();
    connection.Answer("404 Not Found", "X-Said: yes\r\n", "nothing here");
  });
  Request request = Get(server, "/status?full=1");
  request.headers = {{"X-Asked", "please"}};
  const auto response = NewPlainTransport()->Send(request);
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_EQ(response->status, 404);
  EXPECT_EQ(response->body, "nothing here");
  EXPECT_EQ(response->headers.at("x-said"), "yes");
  EXPECT_THAT(seen, HasSubstr("GET /status?full=1 HTTP/1.1\r\n"));
  EXPECT_THAT(seen, HasSubstr("X-Asked: please\r\n"));
}

// Each of these answers must end in an error, and none in the end of the process.
TEST(PlainTransport, SurvivesWhatStrangersSay) {
  const std::vector<std::string> answers = {
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\nhello\r\n0\r\n\r\n",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nhello\r\n0\r\n\r\n",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nhello",
      "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
      "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe",
      "HTTP/1.1 200 OK\r\n\r\n" + std::string(3u << 20, 'x'),
      "HTTP/1.1 200 OK\r\nX: " + std::string(100'000, 'y') + "\r\n\r\n",
      "SSH-2.0-OpenSSH\r\n",
      "",
  };
  for (const std::string& answer : answers) {
    RawServer server([&](RawConnection& connection, int) {
      connection.ReadRequest();
      connection.Write(answer);
    });
    const auto response = NewPlainTransport()->Send(Get(server));
    ASSERT_FALSE(response) << answer.substr(0, 60);
    EXPECT_EQ(response.error().code, ErrorCode::kUnavailable) << response.error().message;
  }
}

TEST(PlainTransport, KeepsItsDeadlineAgainstADrip) {
  RawServer server([](RawConnection& connection, int) {
    connection.ReadRequest();
    connection.Write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome");
    connection.AwaitClient();
  });
  Request request = Get(server);
  request.timeout = milliseconds(100);
  const auto response = NewPlainTransport()->Send(request);
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().code, ErrorCode::kDeadlineExceeded) << response.error().message;
}

TEST(PlainTransport, RefusesWhatItCannotCall) {
  for (const char* url : {"", "https://a/", "http://", "http:///x", "http://a:b/", "ftp://a/", "http://a/ b"}) {
    Request request;
    request.url = url;
    const auto response = NewPlainTransport()->Send(request);
    ASSERT_FALSE(response) << url;
    EXPECT_EQ(response.error().code, ErrorCode::kInvalidArgument) << url;
  }
}

}  // namespace
}  // namespace trainyard::http
