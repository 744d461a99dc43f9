#include "operator/cluster/reflector.h"

namespace trainyard::cluster::reflector {
namespace {

struct Stepper {
  State state;
  const Rules& rules;
  const Time now;
  const double random;
  std::vector<Output> outputs;

  void Enter(Phase phase) {
    state.phase = phase;
    state.since = now;
    state.heard = false;
  }
  void Pause(Phase then) {
    if (now - state.failed_until > rules.forget_failures) state.failures = 0;
    ++state.failures;
    const auto whole = std::chrono::duration<double, std::milli>(rules.backoff.Delay(state.failures));
    state.until = now + std::chrono::duration_cast<Time::duration>(whole * random);
    state.failed_until = state.until;
    state.then = then;
    state.phase = Phase::kPaused;
  }
  void List() {
    state.next.clear();
    state.version.clear();
    outputs.push_back(ListBegun{});
    Enter(Phase::kListing);
  }
  // An expired version is everyday life, unless it follows its list at once.
  void Expired() {
    state.next.clear();
    if (now - state.since >= rules.too_short || state.heard) return Enter(Phase::kEmpty);
    Pause(Phase::kEmpty);
  }

  void operator()(const Go&) {
    if (state.phase == Phase::kPaused) {
      if (now < state.until) return;
      if (state.then != Phase::kEmpty) return Enter(state.then);
    } else if (state.phase != Phase::kEmpty) {
      return;
    }
    List();
  }

  void operator()(PageCame& came) {
    if (state.phase != Phase::kListing) return;
    outputs.push_back(Page{std::move(came.list.items)});
    state.next = std::move(came.list.next);
    if (!state.next.empty()) return;
    state.version = std::move(came.list.resource_version);
    outputs.push_back(ListDone{});
    Enter(Phase::kListed);
  }

  void operator()(const WatchOpened&) {
    if (state.phase == Phase::kListed) Enter(Phase::kWatching);
  }

  void operator()(EventCame& came) {
    if (state.phase != Phase::kWatching) return;
    state.heard = true;
    std::string version = ResourceVersionOf(*came.event.object);
    if (!version.empty()) state.version = std::move(version);
    switch (came.event.type) {
      case WatchEvent::Type::kAdded:
      case WatchEvent::Type::kModified:
        outputs.push_back(Upsert{std::move(came.event.object)});
        break;
      case WatchEvent::Type::kDeleted:
        outputs.push_back(Remove{std::move(came.event.object)});
        break;
      case WatchEvent::Type::kBookmark:
        break;
    }
  }

  void operator()(const Failed& failed) {
    const bool expired = failed.error.code == ErrorCode::kGone;
    switch (state.phase) {
      case Phase::kListing:
        if (expired && !state.next.empty()) return Expired();
        outputs.push_back(Problem{failed.error});
        return Pause(Phase::kListing);
      case Phase::kListed:
        outputs.push_back(WatchLost{expired ? "expired" : "refused"});
        if (expired) return Expired();
        outputs.push_back(Problem{failed.error});
        return Pause(Phase::kListed);
      case Phase::kWatching:
        return Broken(failed.error);
      case Phase::kEmpty:
      case Phase::kPaused:
        return;
    }
  }

  void Broken(const Error& error) {
    if (error.code == ErrorCode::kGone) {
      outputs.push_back(WatchLost{"expired"});
      return Expired();
    }
    const bool ended = error.code == ErrorCode::kUnavailable;
    const bool stalled = error.code == ErrorCode::kDeadlineExceeded;
    outputs.push_back(WatchLost{ended ? "ended" : stalled ? "stalled" : "error"});
    const bool lasted = state.heard || now - state.since >= rules.too_short;
    if (!ended || !lasted) outputs.push_back(Problem{error});
    if ((ended || stalled) && lasted) return Enter(Phase::kListed);
    Pause(Phase::kListed);
  }
};

}  // namespace

std::pair<State, std::vector<Output>> Step(State state, Input input, const Rules& rules, Time now, double random) {
  Stepper stepper{std::move(state), rules, now, random, {}};
  std::visit(stepper, input);
  return {std::move(stepper.state), std::move(stepper.outputs)};
}

}  // namespace trainyard::cluster::reflector
