// Calls and watches of KubeCluster against a server in this process that says what the test wants.
#include <deque>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/http/server.h"
#include "operator/kube/kube_cluster.h"
#include "tests/operator/http/raw_server.h"

namespace trainyard::kube {
namespace {

using cluster::Kind;
using cluster::WatchEvent;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json Pod(const std::string& name, const std::string& version) {
  return {{"metadata",
           {{"namespace", "ns"}, {"name", name}, {"resourceVersion", version}, {"managedFields", json::array({1})}}}};
}

json StatusObject(int code, const std::string& reason, const std::string& message) {
  return {{"kind", "Status"}, {"code", code}, {"reason", reason}, {"message", message}};
}

http::Response StatusAnswer(int code, const std::string& reason, const std::string& message) {
  return http::Response::Json(code, StatusObject(code, reason, message).dump());
}

// Answers with what `answers` holds, one after the other, and remembers what was asked.
class KubeClientTest : public testing::Test {
 protected:
  void SetUp() override {
    auto server = http::Server::Start({}, [this](const http::Request& request) {
      std::lock_guard lock(mutex_);
      asked_.push_back(request);
      if (answers_.empty()) return StatusAnswer(500, "InternalError", "the script is over");
      http::Response answer = answers_.front();
      answers_.pop_front();
      return answer;
    });
    ASSERT_TRUE(server) << server.error().message;
    server_ = *std::move(server);
    config_.server = "http://127.0.0.1:" + std::to_string(server_->port());
    options_.on_request = [this](const RequestInfo& info) {
      std::lock_guard lock(mutex_);
      told_.push_back(info.verb + " " + info.group + "/" + info.resource +
                      (info.subresource.empty() ? "" : "/" + info.subresource) + " " + std::to_string(info.code));
    };
  }
  std::unique_ptr<KubeCluster> Connect() {
    auto cluster = KubeCluster::Connect(config_, options_);
    EXPECT_TRUE(cluster) << cluster.error().message;
    return *std::move(cluster);
  }
  std::vector<std::string> Urls() {
    std::lock_guard lock(mutex_);
    std::vector<std::string> urls;
    for (const http::Request& request : asked_) urls.push_back(request.method + " " + request.url);
    return urls;
  }

  Config config_;
  KubeOptions options_;
  std::mutex mutex_;  // guards the three below
  std::deque<http::Response> answers_;
  std::vector<http::Request> asked_;
  std::vector<std::string> told_;
  std::unique_ptr<http::Server> server_;  // last: its threads use the rest
};

TEST_F(KubeClientTest, SaysWhatTheApiExpects) {
  answers_.assign(9, http::Response::Json(200, Pod("a", "1").dump()));
  const auto kube = Connect();
  ASSERT_TRUE(kube->Get(Kind::kPod, {"ns", "a b"}));
  ASSERT_TRUE(kube->Get(Kind::kNode, {"", "n1"}));
  json object = Pod("a", "1");
  ASSERT_TRUE(kube->Create(Kind::kTrainingJob, object));
  ASSERT_TRUE(kube->Replace(Kind::kPod, object));
  ASSERT_TRUE(kube->ReplaceStatus(Kind::kTrainingJob, object));
  ASSERT_TRUE(kube->Patch(Kind::kPod, {"ns", "a"}, cluster::PatchType::kJson, json::array(), false));
  ASSERT_TRUE(kube->Patch(Kind::kPod, {"ns", "a"}, cluster::PatchType::kMerge, json::object(), true));
  ASSERT_TRUE(kube->Delete(Kind::kPod, {"ns", "a"}, {"u1", "7", 5}));
  ASSERT_TRUE(kube->DeleteCollection(Kind::kPod, {"ns", "a in (b,c)"}, 0));
  EXPECT_THAT(Urls(), ElementsAre("GET /api/v1/namespaces/ns/pods/a%20b", "GET /api/v1/nodes/n1",
                                  "POST /apis/trainyard.dev/v1alpha1/namespaces/ns/trainingjobs",
                                  "PUT /api/v1/namespaces/ns/pods/a",
                                  "PUT /apis/trainyard.dev/v1alpha1/namespaces/ns/trainingjobs/a/status",
                                  "PATCH /api/v1/namespaces/ns/pods/a", "PATCH /api/v1/namespaces/ns/pods/a/status",
                                  "DELETE /api/v1/namespaces/ns/pods/a",
                                  "DELETE /api/v1/namespaces/ns/pods?labelSelector=a%20in%20%28b%2Cc%29"));
  EXPECT_EQ(asked_[5].Header("content-type"), "application/json-patch+json");
  EXPECT_EQ(asked_[6].Header("content-type"), "application/merge-patch+json");
  EXPECT_EQ(asked_[0].Header("user-agent"), "trainyard-operator");
  const json body = json::parse(asked_[7].body);
  EXPECT_EQ(body["preconditions"], json({{"uid", "u1"}, {"resourceVersion", "7"}}));
  EXPECT_EQ(body["gracePeriodSeconds"], 5);
  EXPECT_THAT(told_, ElementsAre("get /pods 200", "get /nodes 200", "create trainyard.dev/trainingjobs 200",
                                 "update /pods 200", "update trainyard.dev/trainingjobs/status 200", "patch /pods 200",
                                 "patch /pods/status 200", "delete /pods 200", "deletecollection /pods 200"));
}

TEST_F(KubeClientTest, NamesThatWouldLeadElsewhereAreNotSent) {
  const auto kube = Connect();
  for (const cluster::ObjectKey& key : {cluster::ObjectKey{"ns", ""}, cluster::ObjectKey{"", "a"},
                                        cluster::ObjectKey{"ns", ".."}, cluster::ObjectKey{"..", "a"}}) {
    const auto got = kube->Get(Kind::kPod, key);
    ASSERT_FALSE(got) << cluster::ToString(key);
    EXPECT_EQ(got.error().code, ErrorCode::kInvalidArgument);
    EXPECT_FALSE(kube->Delete(Kind::kPod, key, {}));
  }
  EXPECT_FALSE(kube->Create(Kind::kPod, json::array()));
  EXPECT_FALSE(kube->DeleteCollection(Kind::kPod, {}, {}));
  EXPECT_TRUE(Urls().empty());
}

TEST_F(KubeClientTest, ManagedFieldsAndBrokenUtf8StayOut) {
  answers_ = {http::Response::Json(200, Pod("a", "1").dump()), http::Response::Json(200, Pod("a", "2").dump())};
  const auto kube = Connect();
  json pod = kube->Get(Kind::kPod, {"ns", "a"}).value();
  EXPECT_FALSE(pod["metadata"].contains("managedFields"));
  pod["status"] = {{"message", "last words: \xff\xfe"}};
  ASSERT_TRUE(kube->ReplaceStatus(Kind::kPod, pod));
  EXPECT_THAT(asked_[1].body, HasSubstr("last words"));
}

TEST_F(KubeClientTest, RefusalsHaveTheCodesThatCallersActOn) {
  struct Case {
    int status;
    const char* reason;
    const char* message;
    ErrorCode code;
  };
  const Case cases[] = {
      {404, "NotFound", "pods \"a\" not found", ErrorCode::kNotFound},
      {409, "AlreadyExists", "pods \"a\" already exists", ErrorCode::kAlreadyExists},
      {409, "Conflict", "the object has been modified", ErrorCode::kConflict},
      {410, "Expired", "too old", ErrorCode::kGone},
      {422, "Invalid", "Pod \"a\" is invalid: spec: Forbidden", ErrorCode::kInvalidArgument},
      {400, "BadRequest", "unknown field", ErrorCode::kInvalidArgument},
      {403, "Forbidden", "pods is forbidden: User \"x\" cannot get", ErrorCode::kPermissionDenied},
      {403, "Forbidden", "pods \"a\" is forbidden: exceeded quota: q", ErrorCode::kResourceExhausted},
      {401, "Unauthorized", "Unauthorized", ErrorCode::kUnavailable},
      {429, "TooManyRequests", "later", ErrorCode::kUnavailable},
      {503, "ServiceUnavailable", "later", ErrorCode::kUnavailable},
      {504, "Timeout", "etcd", ErrorCode::kDeadlineExceeded},
      {500, "InternalError", "etcd", ErrorCode::kInternal},
  };
  const auto kube = Connect();
  for (const Case& c : cases) {
    answers_ = {StatusAnswer(c.status, c.reason, c.message)};
    const auto got = kube->Get(Kind::kPod, {"ns", "a"});
    ASSERT_FALSE(got);
    EXPECT_EQ(ErrorCodeName(got.error().code), ErrorCodeName(c.code)) << c.status << " " << c.reason;
    EXPECT_THAT(got.error().message, HasSubstr(c.message));
    EXPECT_THAT(got.error().message, HasSubstr("get pods ns/a: "));
  }
}

TEST_F(KubeClientTest, AFailedTestOfAPatchIsAConflictAndAnInvalidObjectIsNot) {
  json invalid = StatusObject(422, "Invalid", "Pod \"a\" is invalid");
  invalid["details"]["causes"] = json::array({{{"field", "spec.x"}, {"message", "must be\nshort"}}});
  answers_ = {StatusAnswer(422, "Invalid", "the server rejected our request due to an error in our request"),
              http::Response::Json(422, invalid.dump())};
  const auto kube = Connect();
  const auto patch = [&] {
    return kube->Patch(Kind::kPod, {"ns", "a"}, cluster::PatchType::kJson, json::array(), false).error();
  };
  EXPECT_EQ(patch().code, ErrorCode::kConflict);
  const Error error = patch();
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, HasSubstr("spec.x: must be short"));
}

TEST_F(KubeClientTest, AServerThatAsksForTimeGetsIt) {
  http::Response busy = StatusAnswer(429, "TooManyRequests", "later");
  busy.headers["Retry-After"] = "0";
  http::Response down = StatusAnswer(503, "ServiceUnavailable", "later");
  down.headers["Retry-After"] = "0";
  answers_ = {busy, down, busy, http::Response::Json(201, Pod("a", "1").dump())};
  const auto kube = Connect();
  const auto created = kube->Create(Kind::kPod, Pod("a", ""));
  EXPECT_TRUE(created) << created.error().message;
  EXPECT_EQ(Urls().size(), 4u);

  busy.headers["Retry-After"] = "3600";  // beyond our own deadline: not waited for
  answers_ = {busy};
  const auto refused = kube->Create(Kind::kPod, Pod("a", ""));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
}

TEST_F(KubeClientTest, AStoppedClientWakesWhoWaits) {
  http::Response busy = StatusAnswer(429, "TooManyRequests", "later");
  busy.headers["Retry-After"] = "20";
  answers_ = {busy};
  const auto kube = Connect();
  std::thread stopper([&] {
    while (Urls().empty()) std::this_thread::yield();
    kube->Stop();
  });
  const auto refused = kube->Create(Kind::kPod, Pod("a", ""));
  stopper.join();
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("stopped"));
  EXPECT_FALSE(kube->Get(Kind::kPod, {"ns", "a"}));
}

TEST_F(KubeClientTest, ARefusedTokenIsReadAgainOnce) {
  std::string file = (std::filesystem::temp_directory_path() / "trainyard-token-XXXXXX").string();
  close(mkstemp(file.data()));
  std::ofstream(file) << "old\n";
  config_.token_file = file;
  const auto kube = Connect();
  answers_ = {http::Response::Json(200, Pod("a", "1").dump()), StatusAnswer(401, "Unauthorized", "Unauthorized"),
              http::Response::Json(200, Pod("a", "1").dump()), StatusAnswer(401, "Unauthorized", "Unauthorized"),
              StatusAnswer(401, "Unauthorized", "Unauthorized")};
  ASSERT_TRUE(kube->Get(Kind::kPod, {"ns", "a"}));
  std::ofstream(file) << "new\n";
  EXPECT_TRUE(kube->Get(Kind::kPod, {"ns", "a"}));
  EXPECT_FALSE(kube->Get(Kind::kPod, {"ns", "a"})) << "a token that stays refused is not tried for ever";
  std::vector<std::string> tokens;
  for (const http::Request& request : asked_) tokens.push_back(request.Header("authorization"));
  EXPECT_THAT(tokens, ElementsAre("Bearer old", "Bearer old", "Bearer new", "Bearer new", "Bearer new"));
  std::filesystem::remove(file);
}

TEST_F(KubeClientTest, ListsComeInPagesAndAnExpiredTokenBeginsAnew) {
  const auto page = [](const std::vector<json>& items, const std::string& next) {
    return http::Response::Json(
        200, json({{"metadata", {{"resourceVersion", "9"}, {"continue", next}}}, {"items", items}}).dump());
  };
  answers_ = {page({Pod("a", "1")}, "t/1="), StatusAnswer(410, "Expired", "the provided continue parameter is too old"),
              page({Pod("a", "1"), json(5)}, "t/2="), page({Pod("b", "2")}, "")};
  options_.page_size = 2;
  const auto kube = Connect();
  const auto list = kube->List(Kind::kPod, {"", "x=y"});
  ASSERT_TRUE(list) << list.error().message;
  EXPECT_EQ(list->resource_version, "9");
  ASSERT_EQ(list->items.size(), 3u);
  EXPECT_EQ(*list->items[0], json::parse(R"({"apiVersion": "v1", "kind": "Pod",
      "metadata": {"namespace": "ns", "name": "a", "resourceVersion": "1"}})"));
  EXPECT_EQ(*list->items[1], json(5)) << "what is no object is handed on";
  EXPECT_THAT(Urls(), ElementsAre("GET /api/v1/pods?labelSelector=x%3Dy&limit=2",
                                  "GET /api/v1/pods?labelSelector=x%3Dy&limit=2&continue=t%2F1%3D",
                                  "GET /api/v1/pods?labelSelector=x%3Dy&limit=2",
                                  "GET /api/v1/pods?labelSelector=x%3Dy&limit=2&continue=t%2F2%3D"));
}

TEST_F(KubeClientTest, LeasesDoNotQueueBehindPods) {
  options_.qps = 0.001;
  options_.burst = 1;
  options_.request_timeout = Milliseconds(2'000);
  answers_.assign(6, http::Response::Json(200, Pod("a", "1").dump()));
  const auto kube = Connect();
  ASSERT_TRUE(kube->Get(Kind::kPod, {"ns", "a"}));
  const auto throttled = kube->Get(Kind::kPod, {"ns", "a"});
  ASSERT_FALSE(throttled);
  EXPECT_EQ(throttled.error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(throttled.error().message, HasSubstr("--kube-api-qps"));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(kube->Get(Kind::kLease, {"ns", "leader"}));
}

TEST(KubeConnection, OnlyReadsAreTriedAgainAfterABreak) {
  std::atomic<int> requests = 0;
  http::RawServer server([&](http::RawConnection& connection, int) {
    // Breaks every first request; answers the second.
    if (connection.ReadRequest().empty()) return;
    if (++requests % 2 == 1) return;
    connection.Answer("200 OK", "Connection: close\r\n", Pod("a", "1").dump());
  });
  Config config;
  config.server = server.url();
  auto kube = KubeCluster::Connect(config).value();
  EXPECT_TRUE(kube->Get(Kind::kPod, {"ns", "a"}));
  EXPECT_EQ(requests, 2);
  const auto created = kube->Create(Kind::kPod, Pod("a", ""));
  ASSERT_FALSE(created);
  EXPECT_EQ(created.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(requests, 3) << "a create may have happened";
}

// ---- watches

class KubeWatchTest : public testing::Test {
 protected:
  // Opens a watch of pods on a server that plays `script` after the request.
  void Open(std::function<void(http::RawConnection&)> script, Milliseconds idle = Milliseconds(20'000)) {
    server_ = std::make_unique<http::RawServer>([this, script](http::RawConnection& connection, int) {
      request_ = connection.ReadRequest();
      script(connection);
    });
    Config config;
    config.server = server_->url();
    KubeOptions options;
    options.seed = 1;
    options.watch_idle = idle;
    options.max_event_bytes = 4096;
    cluster_ = KubeCluster::Connect(config, options).value();
    auto watch = cluster_->Watch(Kind::kPod, {"ns", "a=b", "42"});
    if (watch) {
      watch_ = *std::move(watch);
    } else {
      error_ = watch.error();
    }
  }
  static std::string Line(const std::string& type, const json& object) {
    return json({{"type", type}, {"object", object}}).dump() + "\n";
  }
  // "ADDED a", or the name of the error's code.
  std::string Next(Milliseconds timeout = Milliseconds(20'000)) {
    const auto event = watch_->Next(timeout);
    if (!event) return std::string(ErrorCodeName(event.error().code));
    if (!event->has_value()) return "nothing";
    static const char* const kNames[] = {"added", "modified", "deleted", "bookmark"};
    return kNames[static_cast<int>((*event)->type)] + std::string(" ") + cluster::KeyOf(*(*event)->object).name;
  }

  std::string request_;
  std::optional<Error> error_;
  std::unique_ptr<http::RawServer> server_;
  std::unique_ptr<KubeCluster> cluster_;
  std::unique_ptr<cluster::Watch> watch_;
};

TEST_F(KubeWatchTest, EventsAreJoinedHoweverTheyAreCut) {
  Open([](http::RawConnection& connection) {
    connection.StartChunks();
    const std::string lines = Line("ADDED", Pod("a", "43")) + Line("MODIFIED", Pod("a", "44")) +
                              Line("NEWS", Pod("n", "45")) + Line("BOOKMARK", Pod("", "46")) + Line("DELETED", json(5));
    for (size_t i = 0; i < lines.size(); i += 7) connection.Chunk(lines.substr(i, 7));
    connection.EndChunks();
  });
  ASSERT_TRUE(watch_);
  EXPECT_EQ(Next(), "added a");
  EXPECT_EQ(Next(), "modified a");
  EXPECT_EQ(Next(), "bookmark ") << "an event of an unknown type is skipped";
  EXPECT_EQ(Next(), "deleted ") << "what is no object is handed on";
  EXPECT_EQ(Next(), "Unavailable") << "the end";
  EXPECT_THAT(request_, testing::ContainsRegex("GET /api/v1/namespaces/ns/pods\\?watch=true&allowWatchBookmarks=true&"
                                               "timeoutSeconds=1[2-8][0-9]&labelSelector=a%3Db&resourceVersion=42 "));
}

TEST_F(KubeWatchTest, AnExpiredVersionIsGoneInTheStreamAndBeforeIt) {
  Open([](http::RawConnection& connection) {
    connection.StartChunks();
    connection.Chunk(Line("ERROR", StatusObject(410, "Expired", "too old resource version")));
    connection.AwaitClient();
  });
  ASSERT_TRUE(watch_);
  EXPECT_EQ(Next(), "Gone");
  watch_.reset();
  Open([](http::RawConnection& connection) {
    connection.Answer("410 Gone", "", StatusObject(410, "Expired", "too old").dump());
  });
  ASSERT_TRUE(error_);
  EXPECT_EQ(error_->code, ErrorCode::kGone);
}

TEST_F(KubeWatchTest, OtherErrorsOfTheStreamAreNotItsEnd) {
  Open([](http::RawConnection& connection) {
    connection.StartChunks();
    connection.Chunk(Line("ERROR", StatusObject(500, "InternalError", "etcd is away")));
    connection.AwaitClient();
  });
  ASSERT_TRUE(watch_);
  EXPECT_EQ(Next(), "Internal");
}

TEST_F(KubeWatchTest, JunkAndEndlessLinesEndTheWatchWithAnError) {
  Open([](http::RawConnection& connection) {
    connection.StartChunks();
    connection.Chunk("{\"type\": \"ADDED\"\n");
    connection.AwaitClient();
  });
  EXPECT_EQ(Next(), "Internal");
  watch_.reset();
  Open([](http::RawConnection& connection) {
    connection.StartChunks();
    for (int i = 0; i < 10; ++i) connection.Chunk(std::string(1000, 'x'));
    connection.AwaitClient();
  });
  EXPECT_EQ(Next(), "Internal");
}

TEST_F(KubeWatchTest, AHalfOpenWatchIsGivenUp) {
  Open(
      [](http::RawConnection& connection) {
        connection.StartChunks();
        connection.Chunk(Line("ADDED", Pod("a", "43")));
        connection.AwaitClient();
      },
      Milliseconds(300));
  ASSERT_TRUE(watch_);
  EXPECT_EQ(Next(), "added a");
  EXPECT_EQ(Next(Milliseconds(10)), "nothing");
  const std::string end = Next();
  EXPECT_TRUE(end == "DeadlineExceeded" || end == "Unavailable") << end;  // ours, or the library's own idle timer
}

TEST_F(KubeWatchTest, ABreakIsToldAsOne) {
  Open([](http::RawConnection& connection) {
    connection.StartChunks();
    connection.Chunk(Line("ADDED", Pod("a", "43")));
    connection.Write("ff\r\n{\"type\":\"MODI");
  });
  ASSERT_TRUE(watch_);
  std::string last = Next();
  if (last == "added a") last = Next();  // a break may overtake what came just before it
  EXPECT_EQ(last, "Unavailable");
}

TEST_F(KubeWatchTest, StoppingTheClusterEndsItsWatches) {
  Open([](http::RawConnection& connection) {
    connection.StartChunks();
    connection.Chunk(Line("ADDED", Pod("a", "43")));
    connection.AwaitClient();
  });
  ASSERT_TRUE(watch_);
  EXPECT_EQ(Next(), "added a");
  std::thread stopper([&] { cluster_->Stop(); });
  EXPECT_EQ(Next(Milliseconds(60'000)), "Unavailable");
  stopper.join();
}

}  // namespace
}  // namespace trainyard::kube
