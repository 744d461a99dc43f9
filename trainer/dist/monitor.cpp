#include "trainer/dist/monitor.h"

#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "trainer/dist/situation.h"

namespace trainyard::dist {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr const char* kAsk = "ask ";        // + group id
constexpr const char* kLeave = "leave ";    // + world rank + ' ' + reason
constexpr const char* kFailed = "failed ";  // the same
// What a failing rank has sent before may still be on its way.
constexpr milliseconds kDoomDelay{100};
constexpr milliseconds kTellPatience{200};

// The first look is early, so that ranks that part ways learn of it soon; the second is for the message at the
// deadline.
milliseconds FirstLook(milliseconds allowed) { return std::min(allowed / 4, milliseconds(2000)); }
milliseconds LastLook(milliseconds allowed) { return allowed - std::min(allowed / 2, milliseconds(2000)); }
milliseconds Patience(milliseconds allowed) { return std::clamp(allowed / 8, milliseconds(50), milliseconds(500)); }

// When look number `count` (from 0) of a call is due, counted from its start; max: there is no such look.
milliseconds LookDue(const CallRecord& call, int count) {
  constexpr milliseconds kNone = milliseconds::max();
  const milliseconds last = LastLook(call.allowed);
  if (count == 0) return FirstLook(call.allowed);
  if (call.ordinary.count() <= 0 || call.allowed <= call.ordinary) return count == 1 ? last : kNone;
  const milliseconds step = std::max(call.ordinary / 2, milliseconds(50));
  if (count > 1 && step * (count - 1) >= last) return kNone;
  return std::min(step * count, last);
}

int64_t Since(Clock::time_point start) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - start).count();
}

std::string RandomKey() {
  std::random_device random;
  std::string key;
  for (int i = 0; i < 4; ++i) {
    char text[9];
    std::snprintf(text, sizeof text, "%08x", random());
    key += text;
  }
  return key;
}

std::string Rank(int rank) { return "rank " + std::to_string(rank); }

std::string Unanswered(int rank, const Answer& answer) {
  return Rank(rank) + (answer.kind == Answer::Kind::kGone
                           ? " is gone: its process has ended"
                           : " is silent: its process is stopped or hangs, or its node cannot be reached");
}

}  // namespace

Result<std::unique_ptr<Monitor>> Monitor::Start(std::shared_ptr<CallLog> log, int rank, bool ipv6) {
  std::unique_ptr<Monitor> monitor(new Monitor(std::move(log), rank, RandomKey()));
  auto server = InquiryServer::Start(
      ipv6, monitor->desk_.key, [m = monitor.get()](const std::string& question) { return m->AnswerTo(question); });
  if (!server) return Fail(server.error());
  monitor->server_ = std::move(*server);
  monitor->desk_.port = monitor->server_->port();
  monitor->watch_ = std::thread([m = monitor.get()] { m->Watch(); });
  return monitor;
}

Monitor::Monitor(std::shared_ptr<CallLog> log, int rank, std::string key)
    : log_(std::move(log)), rank_(rank), desk_{"", 0, std::move(key)}, next_look_(Clock::time_point::max()) {}

Monitor::~Monitor() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (watch_.joinable()) watch_.join();
  server_.reset();
}

void Monitor::Introduce(std::vector<Desk> desks) {
  std::lock_guard lock(mutex_);
  desks_ = std::move(desks);
}

int Monitor::AddGroup(std::string name, std::string id, std::vector<int> members, FailGroup fail, bool blind) {
  const int group = log_->AddGroup(std::move(name), id);
  std::lock_guard lock(mutex_);
  groups_[group] = {std::move(id), std::move(members), std::move(fail), blind};
  return group;
}

void Monitor::RemoveGroup(int group) {
  std::unique_lock lock(mutex_);
  groups_.erase(group);
  changed_.wait(lock, [&] { return !failing_; });
}

uint64_t Monitor::Begin(CallRecord call) {
  const auto due = Clock::now() + FirstLook(call.allowed);
  const uint64_t id = log_->Begin(std::move(call));
  std::lock_guard lock(mutex_);
  if (due < next_look_) {
    next_look_ = due;
    changed_.notify_all();
  }
  return id;
}

void Monitor::Watch() {
  std::unique_lock lock(mutex_);
  // Asked before each wait: the end may have been called for while this thread had not begun, or was asking around.
  while (!stopping_) {
    if (next_look_ == Clock::time_point::max()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, next_look_);
    }
    if (stopping_ || Clock::now() < next_look_) continue;
    next_look_ = Clock::time_point::max();
    if (doom_ && own_farewell_.empty()) {
      if (Clock::now() < doom_->first) {
        next_look_ = doom_->first;
      } else {
        own_farewell_ = doom_->second;
        lock.unlock();
        FailAll(false, doom_->second);
        lock.lock();
      }
    }
    std::map<uint64_t, Looks> looked;
    std::vector<CallRecord> due;
    for (CallRecord& call : log_->UnderWay()) {
      if (!own_farewell_.empty() || !groups_.contains(call.group)) continue;  // it ends anyway
      int& looks = (looked[call.id] = looked_[call.id]).count;
      const auto waited = milliseconds(Since(call.start));
      if (LookDue(call, looks) <= waited) {
        while (LookDue(call, looks) <= waited) ++looks;
        due.push_back(call);
      }
      if (const milliseconds next = LookDue(call, looks); next < milliseconds::max()) {
        next_look_ = std::min(next_look_, call.start + next);
      }
    }
    looked_ = std::move(looked);
    std::erase_if(verdicts_, [&](const auto& verdict) { return !looked_.contains(verdict.first); });
    lock.unlock();
    for (const CallRecord& call : due) LookAfter(call);
    lock.lock();
  }
}

void Monitor::LookAfter(const CallRecord& call) {
  const Found found = Investigate(call, Patience(call.allowed));
  bool stays_silent = false;
  {
    std::lock_guard lock(mutex_);
    if (!found.text.empty()) verdicts_[call.id] = found.text;
    int& silent = looked_[call.id].silent;
    silent = found.silent ? silent + 1 : 0;
    // Twice, half an ordinary deadline apart.
    stays_silent = silent >= 2 && milliseconds(Since(call.start)) >= call.ordinary;
  }
  if (found.certain || stays_silent) FailAll(found.certain, found.text);
}

// Of one group and of all: a job that has lost its way in one of them is over.
void Monitor::FailAll(bool parted, const std::string& reason) {
  std::vector<FailGroup> groups;
  {
    std::lock_guard lock(mutex_);
    failing_ = true;
    for (const auto& [number, group] : groups_) groups.push_back(group.fail);
  }
  for (const FailGroup& fail : groups) fail(parted, reason);
  std::lock_guard lock(mutex_);
  failing_ = false;
  changed_.notify_all();
}

// Goes from rank to rank along who waits for whom.
Monitor::Found Monitor::Investigate(const CallRecord& call, milliseconds patience) {
  std::string group_id;
  bool blind = false;
  {
    std::lock_guard lock(mutex_);
    const auto group = groups_.find(call.group);
    if (group == groups_.end() || desks_.empty()) return {};
    group_id = group->second.id;
    blind = group->second.blind;
  }
  if (blind) return Survey(call, patience);
  const std::string own_group = group_id;
  Found found;
  std::set<int> visited = {rank_};
  for (int rank = call.waiting_for; rank >= 0 && visited.insert(rank).second;) {
    if (auto reason = FarewellOf(rank, milliseconds(0))) return {*reason, false};
    const Answer answer = AskRank(rank, group_id, patience);
    const auto its = answer.kind == Answer::Kind::kText ? FromLine(answer.text) : std::nullopt;
    if (!its) return {Unanswered(rank, answer), false, true};
    if (its->kind != Situation::Kind::kCall) return {Tell(rank, *its), false};
    const bool same_place = its->group_id == own_group && its->sequence == call.sequence && call.sequence >= 0;
    if (same_place && its->signature != call.signature) return Compare(call, patience);
    if (!same_place) found.text = Tell(rank, *its);
    group_id = its->group_id;
    rank = its->waiting_for;
  }
  return found;
}

// What all ranks of a group are in; empty for a group that has gone.
Monitor::Roll Monitor::AskGroup(int number, milliseconds patience) {
  Roll roll;
  std::vector<Desk> desks;
  {
    std::lock_guard lock(mutex_);
    const auto group = groups_.find(number);
    if (group == groups_.end()) return {};
    roll.group_id = group->second.id;
    roll.members = group->second.members;
    for (const int rank : roll.members) desks.push_back(desks_.at(static_cast<size_t>(rank)));
  }
  roll.answers = Ask(desks, kAsk + roll.group_id, patience);
  return roll;
}

// Asks all: whoever is not in this call keeps the others waiting.
Monitor::Found Monitor::Survey(const CallRecord& call, milliseconds patience) {
  const auto [group_id, members, answers] = AskGroup(call.group, patience);
  std::string text;
  bool silent = false;
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i] == rank_) continue;
    const auto its = answers[i].kind == Answer::Kind::kText ? FromLine(answers[i].text) : std::nullopt;
    if (its && its->kind == Situation::Kind::kCall && its->group_id == group_id && its->sequence >= call.sequence) {
      if (its->sequence == call.sequence && its->signature != call.signature) return Compare(call, patience);
      continue;
    }
    text += (text.empty() ? "" : "; ") + (its ? Tell(members[i], *its) : Unanswered(members[i], answers[i]));
    silent = silent || !its;
  }
  return {text, false, silent};
}

// Ranks of one group are at the same place of the sequence in different calls: whoever is in the minority is wrong.
Monitor::Found Monitor::Compare(const CallRecord& call, milliseconds patience) {
  const auto [group_id, members, answers] = AskGroup(call.group, patience);
  struct Camp {
    std::string ranks, text;
    int size = 0;
  };
  std::map<uint64_t, Camp> by_signature;
  int here = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    const auto its = FromLine(answers[i].text);
    if (!its || its->kind != Situation::Kind::kCall || its->group_id != group_id || its->sequence != call.sequence) {
      continue;
    }
    Camp& camp = by_signature[its->signature];
    camp.ranks += (camp.size++ == 0 ? "" : ", ") + std::to_string(members[i]);
    camp.text = its->text;
    ++here;
  }
  std::vector<Camp> camps;
  for (auto& [signature, camp] : by_signature) camps.push_back(std::move(camp));
  if (camps.size() < 2) return {};  // they have left it by now
  std::stable_sort(camps.begin(), camps.end(), [](const Camp& a, const Camp& b) { return a.size > b.size; });
  const bool majority = camps[0].size > camps[1].size;
  std::string text;
  for (size_t c = majority ? 1 : 0; c < camps.size(); ++c) {
    text += (text.empty() ? "rank " : "; rank ") + camps[c].ranks + " is in " + camps[c].text;
  }
  text += majority ? ", where rank " + camps[0].ranks + " is in " + camps[0].text : "";
  // Without a majority those who are still to come will tell who is right; at the last look there is no more time.
  const bool last = Since(call.start) >= LastLook(call.allowed).count();
  return {"the ranks make different calls: " + text, majority || last || here == static_cast<int>(members.size())};
}

std::string Monitor::Verdict(uint64_t call, milliseconds patience) {
  {
    std::lock_guard lock(mutex_);
    if (const auto verdict = verdicts_.find(call); verdict != verdicts_.end()) return verdict->second;
  }
  const auto record = log_->Find(call);
  return record ? Investigate(*record, patience).text : "";
}

std::string Monitor::WhyLost(uint64_t call, int world_rank) {
  if (auto reason = FarewellOf(world_rank, milliseconds(0))) return *reason;
  const auto record = log_->Find(call);
  const Answer answer = AskRank(world_rank, "", record ? Patience(record->allowed) : kTellPatience);
  const auto its = answer.kind == Answer::Kind::kText ? FromLine(answer.text) : std::nullopt;
  if (its && its->kind == Situation::Kind::kFailed) return its->text;
  // It may have said why and gone before this rank has read it.
  if (auto reason = FarewellOf(world_rank, kTellPatience)) return *reason;
  if (its) return "the connection to " + Rank(world_rank) + " broke";
  return Rank(world_rank) + (answer.kind == Answer::Kind::kGone ? " is gone: its process has ended"
                                                                : " is gone: its node cannot be reached");
}

std::string Monitor::Missing(const std::vector<int>& ranks) {
  std::vector<Desk> desks;
  {
    std::lock_guard lock(mutex_);
    for (const int rank : ranks) desks.push_back(desks_.at(static_cast<size_t>(rank)));
  }
  const std::vector<Answer> answers = Ask(desks, kAsk, milliseconds(500));
  std::string text;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (answers[i].kind == Answer::Kind::kText) continue;
    text += (text.empty() ? "" : "; ") + Unanswered(ranks[i], answers[i]);
  }
  return text;
}

void Monitor::Farewell(const std::string& reason, bool failed) {
  std::vector<Desk> others;
  {
    std::lock_guard lock(mutex_);
    if (!own_farewell_.empty()) return;
    own_farewell_ = reason;
    if (doom_) return;  // someone else has told everyone
    for (size_t r = 0; r < desks_.size(); ++r) {
      if (static_cast<int>(r) != rank_) others.push_back(desks_[r]);
    }
  }
  Tell(others, (failed ? kFailed : kLeave) + std::to_string(rank_) + " " + reason, kTellPatience);
}

std::optional<std::string> Monitor::FarewellOf(int rank, milliseconds patience) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, patience, [&] { return farewells_.contains(rank); });
  const auto found = farewells_.find(rank);
  return found == farewells_.end() ? std::nullopt : std::optional(found->second);
}

Answer Monitor::AskRank(int rank, const std::string& group_id, milliseconds patience) {
  Desk desk;
  {
    std::lock_guard lock(mutex_);
    if (rank < 0 || rank >= static_cast<int>(desks_.size())) return {};
    desk = desks_[static_cast<size_t>(rank)];
  }
  return Ask({desk}, kAsk + group_id, patience)[0];
}

std::string Monitor::AnswerTo(const std::string& question) {
  if (question.starts_with(kAsk)) return Describe(question.substr(std::string_view(kAsk).size()));
  const bool failed = question.starts_with(kFailed);
  if (failed || question.starts_with(kLeave)) {
    char* rest = nullptr;
    const long rank = std::strtol(question.c_str() + std::string_view(failed ? kFailed : kLeave).size(), &rest, 10);
    if (*rest != ' ') return "";
    std::lock_guard lock(mutex_);
    farewells_.emplace(static_cast<int>(rank), rest + 1);
    if (failed && !doom_) {
      doom_.emplace(Clock::now() + kDoomDelay, rest + 1);
      next_look_ = std::min(next_look_, doom_->first);
    }
    changed_.notify_all();
  }
  return "";
}

std::string Monitor::Describe(const std::string& group_id) {
  Situation now;
  {
    std::lock_guard lock(mutex_);
    if (!own_farewell_.empty()) return ToLine({.kind = Situation::Kind::kFailed, .text = own_farewell_});
  }
  const int group = log_->FindGroup(group_id);
  auto call = group < 0 ? std::nullopt : log_->Current(group);
  if (!call) call = log_->Current();
  if (call) {
    now.kind = Situation::Kind::kCall;
    now.text = call->Text();
    now.group_name = log_->GroupName(call->group);
    now.group_id = log_->GroupId(call->group);
    now.sequence = call->sequence;
    now.signature = call->signature;
    now.waiting_for = call->waiting_for;
    now.milliseconds = Since(call->start);
  } else if (const auto last = group < 0 ? std::nullopt : log_->Last(group)) {
    now.text = last->first.Text();
    now.milliseconds = Since(last->second);
  }
  return ToLine(now);
}

}  // namespace trainyard::dist
