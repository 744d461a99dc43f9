// The small parts of the client: splitter, throttle, token, URLs.
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/kube/api_error.h"
#include "operator/kube/line_splitter.h"
#include "operator/kube/request_url.h"
#include "operator/kube/throttle.h"
#include "operator/kube/token.h"

namespace trainyard::kube {
namespace {

using std::chrono::milliseconds;

TEST(LineSplitter, CutsAtLineEndsHoweverTheBytesCome) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> lines(random() % 30);
    std::string text;
    for (std::string& line : lines) {
      line.resize(1 + random() % 50);
      for (char& c : line) c = static_cast<char>('a' + random() % 26);
      text += line + (random() % 2 == 0 ? "\n" : "\r\n") + (random() % 5 == 0 ? "\n" : "");
    }
    text += "rest";
    LineSplitter splitter(64);
    std::vector<std::string> got;
    for (size_t at = 0; at < text.size();) {
      const size_t size = std::min<size_t>(1 + random() % 40, text.size() - at);
      ASSERT_TRUE(splitter.Add(std::string_view(text).substr(at, size)));
      at += size;
      while (random() % 3 != 0) {
        const auto line = splitter.Next();
        if (!line) break;
        got.push_back(*line);
      }
    }
    while (const auto line = splitter.Next()) got.push_back(*line);
    ASSERT_EQ(got, lines);
    EXPECT_TRUE(splitter.Unfinished());
  }
}

TEST(LineSplitter, RefusesALineWithoutEnd) {
  LineSplitter splitter(10);
  ASSERT_TRUE(splitter.Add("0123456789"));
  ASSERT_FALSE(splitter.Add("x"));
  EXPECT_FALSE(splitter.Unfinished());
  ASSERT_TRUE(splitter.Add("ok\n0123456789"));
  EXPECT_EQ(splitter.Next(), "ok");
}

TEST(Throttle, ABurstIsFreeAndThenTurnsComeEvenly) {
  Throttle throttle(10, 3);
  const Throttle::Time start{std::chrono::hours(1)};
  for (int i = 0; i < 3; ++i) EXPECT_EQ(throttle.Reserve(start), start);
  const auto wait = [&](Throttle::Time now) {
    return std::chrono::round<milliseconds>(throttle.Reserve(now) - now).count();
  };
  EXPECT_EQ(wait(start), 100);
  EXPECT_EQ(wait(start), 200);
  EXPECT_EQ(wait(start + milliseconds(100)), 200) << "who came first goes first";
  EXPECT_EQ(wait(start + std::chrono::hours(1)), 0);
}

TEST(Throttle, WithoutQpsNobodyWaits) {
  Throttle throttle(0, 0);
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(throttle.Wait(std::chrono::steady_clock::now() + milliseconds(1)));
}

TEST(Throttle, ATurnAfterTheDeadlineIsRefusedAtOnceAndCostsNothing) {
  Throttle throttle(1, 1);
  const auto soon = [] { return std::chrono::steady_clock::now() + milliseconds(20); };
  ASSERT_TRUE(throttle.Wait(soon()));
  for (int i = 0; i < 100; ++i) {
    const auto refused = throttle.Wait(soon());
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kDeadlineExceeded);
  }
  EXPECT_TRUE(throttle.Wait(std::chrono::steady_clock::now() + milliseconds(5'000)));
}

TEST(Throttle, StopWakesWhoWaits) {
  Throttle throttle(0.001, 1);
  const auto late = std::chrono::steady_clock::now() + std::chrono::hours(2);
  ASSERT_TRUE(throttle.Wait(late));
  std::thread stopper([&] { throttle.Stop(); });
  EXPECT_FALSE(throttle.Wait(late));
  stopper.join();
}

TEST(Token, IsReadAgainAndAnUnreadableFileLeavesTheOldOne) {
  std::string file = (std::filesystem::temp_directory_path() / "trainyard-token-XXXXXX").string();
  close(mkstemp(file.data()));
  Token::Time now{std::chrono::hours(1)};
  Token token("fixed", file, [&] { return now; });
  EXPECT_FALSE(token.Get()) << "an empty file is no token";
  std::ofstream(file) << "one\n";
  EXPECT_EQ(token.Get().value(), "one");
  std::ofstream(file) << "two\n";
  EXPECT_EQ(token.Get().value(), "one") << "not every call reads";
  now += Token::kReadEvery;
  EXPECT_EQ(token.Get().value(), "two");
  std::ofstream(file) << "three\n";
  EXPECT_TRUE(token.Refused("one")) << "of an older token: the current one may be good";
  EXPECT_EQ(token.Get().value(), "two");
  EXPECT_TRUE(token.Refused("two"));
  EXPECT_EQ(token.Get().value(), "three");
  std::filesystem::remove(file);
  now += 2 * Token::kReadEvery;
  EXPECT_EQ(token.Get().value(), "three");
}

TEST(Token, WithoutAFileItIsWhatItIs) {
  Token token("fixed", "");
  EXPECT_EQ(token.Get().value(), "fixed");
  EXPECT_FALSE(token.Refused("fixed"));
  EXPECT_EQ(Token("", "").Get().value(), "");
}

TEST(RequestUrl, EveryByteIsEncoded) {
  EXPECT_EQ(PercentEncode("aZ09-._~"), "aZ09-._~");
  EXPECT_EQ(PercentEncode("a/b?c=d&e f\n\xc3\xa9%"), "a%2Fb%3Fc%3Dd%26e%20f%0A%C3%A9%25");
  EXPECT_EQ(ResourcePath(cluster::Kind::kLease, "ns", "a/../b", "", {}).value(),
            "/apis/coordination.k8s.io/v1/namespaces/ns/leases/a%2F..%2Fb");
  EXPECT_EQ(ResourcePath(cluster::Kind::kNode, "ignored", "n", "status", {}).value(), "/api/v1/nodes/n/status");
}

TEST(RetryAfter, OnlyWholeSecondsCount) {
  EXPECT_EQ(RetryAfter({{"retry-after", "7"}}), std::chrono::seconds(7));
  for (const char* text : {"", "-1", "7s", "Wed, 21 Oct 2015 07:28:00 GMT", "99999999999999"}) {
    EXPECT_FALSE(RetryAfter({{"Retry-After", text}})) << text;
  }
  EXPECT_FALSE(RetryAfter({}));
}

}  // namespace
}  // namespace trainyard::kube
