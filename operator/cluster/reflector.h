// How one kind is followed, as a state machine that does nothing itself: list in pages, watch from the list's version,
// take an ended watch up again, list again when the version has expired, pause after failures. ListWatch drives it.
//
//   Empty -> Listing -> (pages) -> Listed -> Watching
//     ^         |                   |  ^        |
//     |         +---- Paused <------+  +--------+ the stream ended
//     +------------------------------------------ the version has expired
//
// Thread-safety: plain values and pure functions.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "operator/base/backoff.h"
#include "operator/cluster/cluster.h"

namespace trainyard::cluster::reflector {

using Time = std::chrono::steady_clock::time_point;

enum class Phase {
  kEmpty,     // nothing is known
  kListing,   // the page after `next` is wanted; empty: the first
  kListed,    // a watch from `version` is wanted
  kWatching,  // the next event is wanted
  kPaused,    // wait until `until`, then go on in `then`
};

struct State {
  Phase phase = Phase::kEmpty;
  std::string next;
  std::string version;
  Time since{};        // Listed and Watching: when this phase began
  bool heard = false;  // Watching: something came
  Phase then = Phase::kEmpty;
  Time until{};
  int failures = 0;     // lately
  Time failed_until{};  // end of the last pause
};

// ---- what happened
struct Go {};  // leaves Empty, and Paused when its time is over
struct PageCame {
  ObjectList list;
};
struct WatchOpened {};
struct EventCame {
  WatchEvent event;
};
struct Failed {
  Error error;
};
using Input = std::variant<Go, PageCame, WatchOpened, EventCame, Failed>;

// ---- what follows from it, in this order
struct ListBegun {};  // forget the pages of a list that was not finished
struct Page {
  std::vector<Object> items;
};
struct ListDone {};  // what was in no page has vanished
struct Upsert {
  Object object;
};
struct Remove {
  Object object;
};
struct WatchLost {
  std::string reason;  // ended, stalled, expired, refused, error
};
struct Problem {  // to be told; it is being dealt with
  Error error;
};
using Output = std::variant<ListBegun, Page, ListDone, Upsert, Remove, WatchLost, Problem>;

struct Rules {
  Backoff backoff{Milliseconds(800), Milliseconds(30'000)};
  Milliseconds forget_failures{120'000};  // after so long without one, the back-off begins anew
  Milliseconds too_short{1'000};          // a watch that ends sooner and brought nothing is a failure
};

// `random` in [0, 1) spreads the pauses over [0, whole).
std::pair<State, std::vector<Output>> Step(State state, Input input, const Rules& rules, Time now, double random);

}  // namespace trainyard::cluster::reflector
