#include "operator/cluster/list_watch.h"

#include <random>
#include <utility>

namespace trainyard::cluster {
namespace {

// How long one call of Next() waits; only a bound, since Stop() wakes it.
constexpr Milliseconds kWatchSlice{60'000};

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
}

bool ListWatch::stopping() {
  std::lock_guard lock(mutex_);
  return stop_;
}

bool ListWatch::SleepFor(Milliseconds delay) {
  std::unique_lock lock(mutex_);
  return !wake_.wait_for(lock, delay, [this] { return stop_; });
}

void ListWatch::Run() {
  // Seeded by kind: rivals must not retry in step, and a test must be able to repeat a run.
  std::minstd_rand random(static_cast<unsigned>(kind_) + 1);
  int failures = 0;
  while (!stopping()) {
    bool progress = false;
    Status status;
    if (version_.empty()) {
      status = ListOnce();
    } else {
      const std::string before = version_;
      status = WatchOnce();
      progress = version_ != before;
      if (!status && status.error().code == ErrorCode::kGone) {
        version_.clear();
        failures = 0;
        continue;
      }
    }
    if (status || progress) failures = 0;
    if (status) continue;
    if (stopping()) return;
    // A stream that ended after it had brought something is normal: go on at once.
    if (progress && status.error().code == ErrorCode::kUnavailable) continue;
    if (callbacks_.problem) callbacks_.problem(status.error());
    const double share = std::uniform_real_distribution<double>(0, 1)(random);
    if (!SleepFor(options_.backoff.Jittered(++failures, share))) return;
  }
}

Status ListWatch::ListOnce() {
  Result<ObjectList> list = cluster_.List(kind_, {options_.ns, options_.label_selector});
  if (!list) return Fail(list.error().Wrap("list of " + std::string(InfoOf(kind_).plural)));
  if (stopping()) return {};
  callbacks_.replace(list->items);
  version_ = list->resource_version;
  return {};
}

Status ListWatch::WatchOnce() {
  auto opened = cluster_.Watch(kind_, {options_.ns, options_.label_selector, version_});
  if (!opened) return Fail(opened.error().Wrap("watch of " + std::string(InfoOf(kind_).plural)));
  std::shared_ptr<cluster::Watch> watch = *std::move(opened);
  {
    std::lock_guard lock(mutex_);
    if (stop_) return {};
    watch_ = watch;
  }
  while (!stopping()) {
    Result<std::optional<WatchEvent>> event = watch->Next(kWatchSlice);
    if (!event) return Fail(event.error().Wrap("watch of " + std::string(InfoOf(kind_).plural)));
    if (!event->has_value()) continue;
    const WatchEvent& change = **event;
    switch (change.type) {
      case WatchEvent::Type::kAdded:
      case WatchEvent::Type::kModified:
        callbacks_.upsert(change.object);
        break;
      case WatchEvent::Type::kDeleted:
        callbacks_.remove(change.object);
        break;
      case WatchEvent::Type::kBookmark:
        break;
    }
    std::string version = ResourceVersionOf(*change.object);
    if (!version.empty()) version_ = std::move(version);
  }
  return {};
}

}  // namespace trainyard::cluster
