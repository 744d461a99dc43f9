#include "operator/runtime/health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard::runtime {
namespace {

http::Response Get(const http::Handler& handler, const std::string& url, const std::string& method = "GET") {
  http::Request request;
  request.method = method;
  request.url = url;
  return handler(request);
}

TEST(Health, EachProbeAsksItsOwnChecksAndNamesTheOneThatFails) {
  Health health;
  const http::Handler probe = ProbeHandler(health);
  EXPECT_EQ(Get(probe, "/healthz").status, 200);
  EXPECT_EQ(Get(probe, "/readyz?verbose").status, 200);
  Status caches = Fail(ErrorCode::kUnavailable, "the cache of pods is not filled: connection refused");
  health.Set(Health::Kind::kReady, "caches", [&] { return caches; });
  EXPECT_EQ(Get(probe, "/healthz").status, 200);
  EXPECT_EQ(Get(probe, "/readyz").status, 503);
  EXPECT_EQ(Get(probe, "/readyz").body, "caches: the cache of pods is not filled: connection refused\n");
  caches = {};
  EXPECT_EQ(Get(probe, "/readyz").status, 200);
  health.Set(Health::Kind::kLive, "watches", [] { return Status(Fail(ErrorCode::kDeadlineExceeded, "stuck")); });
  EXPECT_EQ(Get(probe, "/healthz").status, 503);
  EXPECT_EQ(Get(probe, "/readyz").status, 200);
  health.Remove(Health::Kind::kLive, "watches");
  EXPECT_EQ(Get(probe, "/healthz").body, "ok\n");
}

TEST(Health, AProcessThatEndsIsAliveButNotReady) {
  Health health;
  health.ShutDown();
  const http::Handler probe = ProbeHandler(health);
  EXPECT_EQ(Get(probe, "/healthz").status, 200);
  EXPECT_EQ(Get(probe, "/readyz").status, 503);
}

TEST(Health, OtherPathsAndMethodsAreRefused) {
  Health health;
  Metrics metrics;
  EXPECT_EQ(Get(ProbeHandler(health), "/metrics").status, 404);
  EXPECT_EQ(Get(ProbeHandler(health), "/healthz", "POST").status, 405);
  EXPECT_EQ(Get(MetricsHandler(metrics), "/").status, 404);
  EXPECT_EQ(Get(MetricsHandler(metrics), "/metrics", "DELETE").status, 405);
  EXPECT_EQ(Get(MetricsHandler(metrics), "/metrics").headers["Content-Type"],
            "text/plain; version=0.0.4; charset=utf-8");
}

TEST(BindAddress, ReadsWhatPeopleWrite) {
  struct Case {
    const char* text;
    const char* host;
    int port;
  };
  for (const Case& c : {Case{":8080", "", 8080},
                        {"127.0.0.1:0", "127.0.0.1", 0},
                        {"[::1]:65535", "::1", 65535},
                        {"localhost:1", "localhost", 1},
                        {"0", "", -1}}) {
    const auto address = ParseBindAddress(c.text);
    ASSERT_TRUE(address.has_value()) << c.text;
    EXPECT_EQ(address->host, c.host) << c.text;
    EXPECT_EQ(address->port, c.port) << c.text;
    EXPECT_EQ(address->Off(), c.port < 0);
  }
  for (const char* text : {"", "8080", ":", ":x", ":65536", ":-1", "::1:80", "a:80x"}) {
    const auto address = ParseBindAddress(text);
    ASSERT_FALSE(address.has_value()) << text;
    EXPECT_THAT(address.error().message, testing::HasSubstr("HOST:PORT"));
  }
}

}  // namespace
}  // namespace trainyard::runtime
