#include "operator/cluster/list_watch.h"

#include <random>
#include <utility>

namespace trainyard::cluster {

using reflector::Phase;

namespace {

// How long one call of Next() waits; only a bound, since Stop() wakes it.
constexpr Milliseconds kWatchSlice{60'000};

template <typename... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <typename... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

}  // namespace

ListWatch::ListWatch(Cluster& cluster, Kind kind, ListWatchOptions options, Callbacks callbacks)
    : cluster_(cluster), kind_(kind), options_(std::move(options)), callbacks_(std::move(callbacks)) {}

ListWatch::~ListWatch() { Stop(); }

void ListWatch::Start() {
  thread_ = std::thread([this] { Run(); });
}

void ListWatch::Stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    if (watch_) watch_->Stop();
    wake_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  // A watch must not outlive its cluster.
  std::lock_guard lock(mutex_);
  watch_.reset();
}

InformerStats ListWatch::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

bool ListWatch::stopping() const {
  std::lock_guard lock(mutex_);
  return stop_;
}

bool ListWatch::SleepUntil(reflector::Time until) {
  std::unique_lock lock(mutex_);
  return !wake_.wait_until(lock, until, [this] { return stop_; });
}

void ListWatch::Count(const std::function<void(InformerStats&)>& change) {
  std::lock_guard lock(mutex_);
  change(stats_);
}

Error ListWatch::Wrap(const char* what, const Error& error) const {
  return error.Wrap(what + std::string(" of ") + std::string(InfoOf(kind_).plural));
}

void ListWatch::Run() {
  // Seeded by kind: rivals must not retry in step, and a test must be able to repeat a run.
  std::minstd_rand random(static_cast<unsigned>(kind_) + 1);
  std::uniform_real_distribution<double> share(0, 1);
  reflector::Rules rules;
  rules.backoff = options_.backoff;
  reflector::State state;
  while (!stopping()) {
    reflector::Input input = Await(state);
    if (stopping()) return;
    const reflector::Time now = std::chrono::steady_clock::now();
    if (!std::holds_alternative<reflector::Failed>(input) && !std::holds_alternative<reflector::Go>(input)) {
      Count([now](InformerStats& stats) { stats.last_event = now; });
    }
    auto [next, outputs] = reflector::Step(std::move(state), std::move(input), rules, now, share(random));
    state = std::move(next);
    for (const reflector::Output& output : outputs) Apply(output);
  }
}

reflector::Input ListWatch::Await(const reflector::State& state) {
  switch (state.phase) {
    case Phase::kEmpty:
      return reflector::Go{};
    case Phase::kPaused:
      SleepUntil(state.until);
      return reflector::Go{};
    case Phase::kListing: {
      Result<ObjectList> page =
          cluster_.List(kind_, {options_.ns, options_.label_selector, options_.page_size, state.next});
      if (!page) return reflector::Failed{Wrap("list", page.error())};
      return reflector::PageCame{*std::move(page)};
    }
    case Phase::kListed:
      return OpenWatch(state.version);
    case Phase::kWatching:
      while (true) {
        Result<std::optional<WatchEvent>> event = watch_->Next(kWatchSlice);
        if (!event) return reflector::Failed{Wrap("watch", event.error())};
        if (event->has_value()) return reflector::EventCame{**std::move(event)};
      }
  }
  return reflector::Go{};
}

reflector::Input ListWatch::OpenWatch(const std::string& version) {
  auto opened = cluster_.Watch(kind_, {options_.ns, options_.label_selector, version});
  if (!opened) return reflector::Failed{Wrap("watch", opened.error())};
  std::lock_guard lock(mutex_);
  watch_ = *std::move(opened);
  if (stop_) watch_->Stop();
  ++stats_.watches;
  return reflector::WatchOpened{};
}

void ListWatch::Apply(const reflector::Output& output) {
  std::visit(Overloaded{[this](const reflector::ListBegun&) { callbacks_.list_begun(); },
                        [this](const reflector::Page& page) { callbacks_.page(page.items); },
                        [this](const reflector::ListDone&) {
                          Count([](InformerStats& stats) { ++stats.lists; });
                          callbacks_.list_done();
                        },
                        [this](const reflector::Upsert& change) { callbacks_.upsert(change.object); },
                        [this](const reflector::Remove& change) { callbacks_.remove(change.object); },
                        [this](const reflector::WatchLost& lost) {
                          Count([&](InformerStats& stats) { ++stats.watch_restarts[lost.reason]; });
                        },
                        [this](const reflector::Problem& problem) {
                          Count([](InformerStats& stats) { ++stats.problems; });
                          if (callbacks_.problem) callbacks_.problem(problem.error);
                        }},
             output);
}

}  // namespace trainyard::cluster
