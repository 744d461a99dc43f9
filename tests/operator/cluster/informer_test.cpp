#include "operator/cluster/informer.h"

#include <deque>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard::cluster {
namespace {

using nlohmann::json;
using testing::ElementsAre;

constexpr Milliseconds kPatience{10'000};

Object Item(const std::string& name, int version, int value = 0) {
  return std::make_shared<const json>(
      json{{"metadata", {{"name", name}, {"resourceVersion", std::to_string(version)}}}, {"value", value}});
}

// A server that plays a script: each List and each Watch takes the next entry. A watch whose script is over waits.
class ScriptedCluster : public Cluster {
 public:
  struct WatchScript {
    std::vector<WatchEvent> events;
    std::optional<Error> then;  // absent: wait for Stop()
  };

  std::deque<Result<ObjectList>> lists;
  std::deque<WatchScript> watches;

  std::vector<std::string> asked() const {
    std::lock_guard lock(mutex_);
    return asked_;
  }

  Result<ObjectList> List(Kind, const ListOptions&) override {
    std::lock_guard lock(mutex_);
    asked_.push_back("list");
    if (lists.empty()) return Fail(ErrorCode::kUnavailable, "script is over");
    auto next = lists.front();
    lists.pop_front();
    return next;
  }
  Result<std::unique_ptr<cluster::Watch>> Watch(Kind, const WatchOptions& options) override {
    std::lock_guard lock(mutex_);
    asked_.push_back("watch " + options.from_version);
    WatchScript script;
    if (!watches.empty()) {
      script = watches.front();
      watches.pop_front();
    }
    return std::make_unique<ScriptedWatch>(std::move(script));
  }
  Result<json> Get(Kind, const ObjectKey&) override { return Unused(); }
  Result<json> Create(Kind, const json&) override { return Unused(); }
  Result<json> Replace(Kind, const json&) override { return Unused(); }
  Result<json> ReplaceStatus(Kind, const json&) override { return Unused(); }
  Result<json> Patch(Kind, const ObjectKey&, PatchType, const json&, bool) override { return Unused(); }
  Status Delete(Kind, const ObjectKey&, const DeleteOptions&) override { return Unused(); }
  Status DeleteCollection(Kind, const ListOptions&, std::optional<int64_t>) override { return Unused(); }

 private:
  class ScriptedWatch : public cluster::Watch {
   public:
    explicit ScriptedWatch(WatchScript script) : script_(std::move(script)) {}
    Result<std::optional<WatchEvent>> Next(Milliseconds) override {
      std::unique_lock lock(mutex_);
      if (next_ < script_.events.size()) return script_.events[next_++];
      if (script_.then) return Fail(*script_.then);
      stopped_.wait(lock, [this] { return stop_; });
      return Fail(ErrorCode::kUnavailable, "stopped");
    }
    void Stop() override {
      std::lock_guard lock(mutex_);
      stop_ = true;
      stopped_.notify_all();
    }

   private:
    const WatchScript script_;
    size_t next_ = 0;
    std::mutex mutex_;
    std::condition_variable stopped_;
    bool stop_ = false;
  };
  static tl::unexpected<Error> Unused() { return Fail(ErrorCode::kInternal, "not in this test"); }

  mutable std::mutex mutex_;
  std::vector<std::string> asked_;
};

class InformerTest : public testing::Test {
 protected:
  using Values = Informer<int>;

  std::unique_ptr<Values> Make() {
    ListWatchOptions options;
    options.backoff = {Milliseconds(1), Milliseconds(1)};
    auto informer = std::make_unique<Values>(cluster_, Kind::kPod, options, [](const json& object) -> Result<int> {
      if (!object["value"].is_number_integer()) return Fail(ErrorCode::kInvalidArgument, "no value");
      return object["value"].get<int>();
    });
    informer->AddHandler([this](const ObjectKey& key, const Values::Item& old, const Values::Item& now) {
      const auto text = [](const Values::Item& item) { return item ? std::to_string(*item) : std::string("-"); };
      std::lock_guard lock(mutex_);
      seen_.push_back(key.name + " " + text(old) + ">" + text(now));
    });
    informer->SetProblemHandler([this](const ObjectKey& key, const Error& error) {
      std::lock_guard lock(mutex_);
      problems_.push_back(key.name + ": " + error.message);
    });
    return informer;
  }
  static bool Has(Values& informer, const std::string& name, int value) {
    return informer.WaitFor(kPatience, [&](const auto& items) {
      const auto found = items.find({"", name});
      return found != items.end() && *found->second == value;
    });
  }

  ScriptedCluster cluster_;
  std::mutex mutex_;
  std::vector<std::string> seen_;
  std::vector<std::string> problems_;
};

TEST_F(InformerTest, FollowsTheListAndTheWatch) {
  cluster_.lists = {ObjectList{{Item("a", 1, 1), Item("b", 2, 2)}, "5"}};
  cluster_.watches = {{{{WatchEvent::Type::kModified, Item("a", 6, 10)},
                        {WatchEvent::Type::kDeleted, Item("b", 7, 2)},
                        {WatchEvent::Type::kAdded, Item("c", 8, 3)}},
                       {}}};
  auto informer = Make();
  informer->Start();
  ASSERT_TRUE(informer->WaitSynced(kPatience));
  ASSERT_TRUE(Has(*informer, "c", 3));
  EXPECT_EQ(informer->Get({"", "b"}), nullptr);
  informer->Stop();
  EXPECT_THAT(seen_, ElementsAre("a ->1", "b ->2", "a 1>10", "b 2>-", "c ->3"));
}

TEST_F(InformerTest, GoneMeansANewListWhoseMissingObjectsHaveVanished) {
  cluster_.lists = {ObjectList{{Item("a", 1, 1), Item("b", 2, 2)}, "5"}, ObjectList{{Item("b", 9, 20)}, "9"}};
  cluster_.watches = {{{}, Error{ErrorCode::kGone, "expired"}}};
  auto informer = Make();
  informer->Start();
  ASSERT_TRUE(Has(*informer, "b", 20));
  informer->Stop();
  EXPECT_EQ(informer->Get({"", "a"}), nullptr);
  EXPECT_THAT(seen_, ElementsAre("a ->1", "b ->2", "a 1>-", "b 2>20"));
  EXPECT_THAT(problems_, testing::IsEmpty()) << "an expired version is everyday life";
}

TEST_F(InformerTest, AStreamThatEndsIsTakenUpAgainFromTheLastVersion) {
  cluster_.lists = {ObjectList{{}, "5"}};
  const auto bookmark = std::make_shared<const json>(json{{"metadata", {{"resourceVersion", "8"}}}});
  cluster_.watches = {{{{WatchEvent::Type::kAdded, Item("a", 6, 1)}, {WatchEvent::Type::kBookmark, bookmark}},
                       Error{ErrorCode::kUnavailable, "closed"}},
                      {{{WatchEvent::Type::kModified, Item("a", 9, 2)}}, {}}};
  auto informer = Make();
  informer->Start();
  ASSERT_TRUE(Has(*informer, "a", 2));
  informer->Stop();
  EXPECT_THAT(cluster_.asked(), ElementsAre("list", "watch 5", "watch 8"));
}

TEST_F(InformerTest, AFailedListIsReportedAndRetried) {
  cluster_.lists = {Fail(ErrorCode::kPermissionDenied, "pods is forbidden"), ObjectList{{Item("a", 1, 1)}, "5"}};
  auto informer = Make();
  informer->Start();
  ASSERT_TRUE(informer->WaitSynced(kPatience));
  informer->Stop();
  EXPECT_THAT(problems_, ElementsAre(": list of pods: pods is forbidden"));
  EXPECT_THAT(seen_, ElementsAre("a ->1"));
}

TEST_F(InformerTest, AMalformedObjectIsReportedAndStopsNobody) {
  const auto bad = std::make_shared<const json>(json{{"metadata", {{"name", "bad"}}}, {"value", "x"}});
  cluster_.lists = {ObjectList{{bad, std::make_shared<const json>(5), Item("a", 1, 1)}, "5"}};
  cluster_.watches = {{{{WatchEvent::Type::kModified,
                         std::make_shared<const json>(
                             json{{"metadata", {{"name", "a"}, {"resourceVersion", "6"}}}, {"value", nullptr}})},
                        {WatchEvent::Type::kAdded, Item("b", 7, 2)}},
                       {}}};
  ListWatchOptions options;
  Values informer(cluster_, Kind::kPod, options, [](const json& object) -> Result<int> {
    if (!object.is_object() || !object["value"].is_number_integer())
      return Fail(ErrorCode::kInvalidArgument, "no value");
    return object["value"].get<int>();
  });
  std::vector<std::string> problems;
  informer.SetProblemHandler([&](const ObjectKey& key, const Error&) { problems.push_back(key.name); });
  informer.Start();
  ASSERT_TRUE(Has(informer, "b", 2));
  EXPECT_EQ(informer.Get({"", "a"}), nullptr) << "what cannot be read any more is not kept";
  informer.Stop();
  EXPECT_THAT(problems, ElementsAre("bad", "", "a"));
}

TEST_F(InformerTest, StopsWhileItWaits) {
  cluster_.lists = {};  // every list fails
  auto informer = Make();
  informer->Start();
  EXPECT_FALSE(informer->WaitSynced(Milliseconds(5)));
  informer->Stop();
  informer->Stop();
}

}  // namespace
}  // namespace trainyard::cluster
