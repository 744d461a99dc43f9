// The state machine alone: no thread, no time but the one given, states told as strings.
#include "operator/cluster/reflector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard::cluster::reflector {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::IsEmpty;

Object Item(const std::string& name, const std::string& version) {
  return std::make_shared<const json>(json{{"metadata", {{"name", name}, {"resourceVersion", version}}}});
}

class ReflectorTest : public testing::Test {
 protected:
  // Steps and returns what followed, one word each; the state goes to state_.
  std::vector<std::string> After(Input input) {
    auto [state, outputs] = Step(state_, std::move(input), rules_, now_, random_);
    state_ = std::move(state);
    std::vector<std::string> words;
    for (const Output& output : outputs) words.push_back(Word(output));
    return words;
  }
  std::string At() const {
    switch (state_.phase) {
      case Phase::kEmpty:
        return "empty";
      case Phase::kListing:
        return "listing " + state_.next;
      case Phase::kListed:
        return "listed " + state_.version;
      case Phase::kWatching:
        return "watching " + state_.version;
      case Phase::kPaused:
        return "paused " + std::to_string(std::chrono::duration_cast<Milliseconds>(state_.until - now_).count());
    }
    return "?";
  }
  static std::string Word(const Output& output) {
    if (std::holds_alternative<ListBegun>(output)) return "begun";
    if (const auto* page = std::get_if<Page>(&output)) return "page " + std::to_string(page->items.size());
    if (std::holds_alternative<ListDone>(output)) return "done";
    if (const auto* upsert = std::get_if<Upsert>(&output)) return "upsert " + KeyOf(*upsert->object).name;
    if (const auto* removed = std::get_if<Remove>(&output)) return "remove " + KeyOf(*removed->object).name;
    if (const auto* lost = std::get_if<WatchLost>(&output)) return "lost " + lost->reason;
    return "problem";
  }
  static Input Error_(ErrorCode code) { return Failed{Error{code, "x"}}; }
  static Input Event(WatchEvent::Type type, const std::string& name, const std::string& version) {
    return EventCame{{type, Item(name, version)}};
  }
  void Pass(Milliseconds time) { now_ += time; }
  // To Watching from version `version`, long ago enough for its end to be no failure.
  void Watch(const std::string& version) {
    After(Go{});
    After(PageCame{{{}, version}});
    After(WatchOpened{});
    Pass(Milliseconds(5'000));
    ASSERT_EQ(At(), "watching " + version);
  }

  State state_;
  Rules rules_;
  Time now_{std::chrono::hours(1)};
  double random_ = 0.5;
};

TEST_F(ReflectorTest, ListsInPagesThenWatches) {
  EXPECT_THAT(After(Go{}), ElementsAre("begun"));
  EXPECT_EQ(At(), "listing ");
  EXPECT_THAT(After(PageCame{{{Item("a", "1"), Item("b", "2")}, "7", "token"}}), ElementsAre("page 2"));
  EXPECT_EQ(At(), "listing token");
  EXPECT_THAT(After(PageCame{{{Item("c", "3")}, "7", ""}}), ElementsAre("page 1", "done"));
  EXPECT_EQ(At(), "listed 7");
  EXPECT_THAT(After(WatchOpened{}), IsEmpty());
  EXPECT_THAT(After(Event(WatchEvent::Type::kAdded, "d", "8")), ElementsAre("upsert d"));
  EXPECT_THAT(After(Event(WatchEvent::Type::kDeleted, "a", "9")), ElementsAre("remove a"));
  EXPECT_THAT(After(Event(WatchEvent::Type::kBookmark, "", "opaque-x")), IsEmpty());
  EXPECT_EQ(At(), "watching opaque-x") << "versions are words, never numbers";
}

TEST_F(ReflectorTest, AnExpiredPageBeginsTheListAnew) {
  After(Go{});
  After(PageCame{{{Item("a", "1")}, "7", "token"}});
  Pass(Milliseconds(10'000));
  EXPECT_THAT(After(Error_(ErrorCode::kGone)), IsEmpty());
  EXPECT_EQ(At(), "empty");
  EXPECT_THAT(After(Go{}), ElementsAre("begun"));
  EXPECT_EQ(At(), "listing ");
}

TEST_F(ReflectorTest, AFailedPageIsAskedForAgain) {
  After(Go{});
  After(PageCame{{{Item("a", "1")}, "7", "token"}});
  EXPECT_THAT(After(Error_(ErrorCode::kUnavailable)), ElementsAre("problem"));
  EXPECT_EQ(At(), "paused 400");
  After(Go{});
  EXPECT_EQ(At(), "paused 400") << "its time is not over";
  Pass(Milliseconds(400));
  EXPECT_THAT(After(Go{}), IsEmpty());
  EXPECT_EQ(At(), "listing token");
}

TEST_F(ReflectorTest, AnExpiredWatchMeansANewList) {
  Watch("7");
  EXPECT_THAT(After(Error_(ErrorCode::kGone)), ElementsAre("lost expired"));
  EXPECT_EQ(At(), "empty");
  // At the start of a watch, and at once after its list: not in a hot loop.
  After(Go{});
  After(PageCame{{{}, "8"}});
  EXPECT_THAT(After(Error_(ErrorCode::kGone)), ElementsAre("lost expired"));
  EXPECT_EQ(At(), "paused 400");
  Pass(Milliseconds(400));
  EXPECT_THAT(After(Go{}), ElementsAre("begun"));
}

TEST_F(ReflectorTest, AnEndedWatchIsTakenUpAtOnce) {
  Watch("7");
  EXPECT_THAT(After(Error_(ErrorCode::kUnavailable)), ElementsAre("lost ended"));
  EXPECT_EQ(At(), "listed 7");
}

TEST_F(ReflectorTest, AWatchThatEndsAtOnceWithNothingIsAFailure) {
  After(Go{});
  After(PageCame{{{}, "7"}});
  for (const char* paused : {"paused 400", "paused 800", "paused 1600", "paused 3200"}) {
    After(WatchOpened{});
    EXPECT_THAT(After(Error_(ErrorCode::kUnavailable)), ElementsAre("lost ended", "problem"));
    EXPECT_EQ(At(), paused);
    now_ = state_.until;
    After(Go{});
    EXPECT_EQ(At(), "listed 7");
  }
  After(WatchOpened{});
  After(Event(WatchEvent::Type::kAdded, "a", "8"));
  EXPECT_THAT(After(Error_(ErrorCode::kUnavailable)), ElementsAre("lost ended")) << "it brought something";
  EXPECT_EQ(At(), "listed 8");
}

TEST_F(ReflectorTest, ADeadWatchIsToldAndTakenUp) {
  Watch("7");
  EXPECT_THAT(After(Error_(ErrorCode::kDeadlineExceeded)), ElementsAre("lost stalled", "problem"));
  EXPECT_EQ(At(), "listed 7");
}

TEST_F(ReflectorTest, AnErrorOfTheServerPauses) {
  Watch("7");
  EXPECT_THAT(After(Error_(ErrorCode::kInternal)), ElementsAre("lost error", "problem"));
  EXPECT_EQ(At(), "paused 400");
  Pass(Milliseconds(400));
  After(Go{});
  EXPECT_EQ(At(), "listed 7");
  EXPECT_THAT(After(Error_(ErrorCode::kPermissionDenied)), ElementsAre("lost refused", "problem"));
  EXPECT_EQ(At(), "paused 800");
}

TEST_F(ReflectorTest, TheBackOffHasACapAndBeginsAnewAfterTwoQuietMinutes) {
  random_ = 0.999;
  After(Go{});
  for (int i = 0; i < 20; ++i) {
    After(Error_(ErrorCode::kUnavailable));
    ASSERT_LE(state_.until - now_, Milliseconds(30'000));
    now_ = state_.until;
    After(Go{});
  }
  After(Error_(ErrorCode::kUnavailable));
  EXPECT_GT(state_.until - now_, Milliseconds(29'000));
  now_ = state_.until + Milliseconds(121'000);
  After(Go{});
  After(Error_(ErrorCode::kUnavailable));
  EXPECT_LE(state_.until - now_, Milliseconds(800));
}

TEST_F(ReflectorTest, MalformedObjectsAreHandedOn) {
  Watch("7");
  EXPECT_THAT(After(EventCame{{WatchEvent::Type::kModified, std::make_shared<const json>(5)}}), ElementsAre("upsert "));
  EXPECT_EQ(At(), "watching 7") << "it has no version";
}

TEST_F(ReflectorTest, WhatDoesNotBelongToThePhaseIsIgnored) {
  EXPECT_THAT(After(PageCame{{{Item("a", "1")}, "7"}}), IsEmpty());
  EXPECT_THAT(After(WatchOpened{}), IsEmpty());
  EXPECT_THAT(After(Event(WatchEvent::Type::kAdded, "a", "1")), IsEmpty());
  EXPECT_THAT(After(Error_(ErrorCode::kGone)), IsEmpty());
  EXPECT_EQ(At(), "empty");
}

}  // namespace
}  // namespace trainyard::cluster::reflector
