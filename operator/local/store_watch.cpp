#include "operator/local/store_watch.h"

#include <algorithm>
#include <charconv>
#include <chrono>

namespace trainyard::local {

using cluster::WatchEvent;
using nlohmann::json;

Result<std::unique_ptr<cluster::Watch>> Store::Watch(cluster::Kind kind, const cluster::WatchOptions& options) {
  auto selector = cluster::Selector::Parse(options.label_selector);
  if (!selector) return Fail(selector.error());
  std::lock_guard lock(mutex_);
  Version from = version_;
  if (!options.from_version.empty()) {
    const std::string& text = options.from_version;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), from);
    if (error != std::errc() || end != text.data() + text.size()) {
      return Fail(ErrorCode::kInvalidArgument, "watch: \"" + text + "\" is no resource version");
    }
  }
  if (from < shelf(kind).expired) {
    return Fail(ErrorCode::kGone, "watch: resource version " + options.from_version + " has expired; list again");
  }
  return std::make_unique<StoreWatch>(shared_from_this(), kind, options.ns, *std::move(selector), from);
}

std::optional<WatchEvent> StoreWatch::Filter(const Store::Change& change) const {
  const auto matches = [this](const cluster::Object& object) {
    if (!object) return false;
    if (!ns_.empty() && cluster::KeyOf(*object).ns != ns_) return false;
    return selector_.Matches(*object);
  };
  const bool before = matches(change.before);
  const bool now = change.type != WatchEvent::Type::kDeleted && matches(change.now);
  if (now) return WatchEvent{before ? WatchEvent::Type::kModified : WatchEvent::Type::kAdded, change.now};
  if (!before) return std::nullopt;
  return WatchEvent{WatchEvent::Type::kDeleted, change.now};
}

Result<std::optional<WatchEvent>> StoreWatch::Next(Milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  std::unique_lock lock(store_->mutex_);
  while (true) {
    if (stopped_ || store_->closed_) return Fail(ErrorCode::kUnavailable, "watch: stopped");
    const Store::Shelf& shelf = store_->shelf(kind_);
    if (place_ < shelf.expired) return Fail(ErrorCode::kGone, "watch: too slow, its version has expired; list again");
    auto next =
        std::upper_bound(shelf.history.begin(), shelf.history.end(), place_,
                         [](uint64_t version, const Store::Change& change) { return version < change.version; });
    for (; next != shelf.history.end(); ++next) {
      place_ = next->version;
      if (std::optional<WatchEvent> event = Filter(*next)) return event;
    }
    if (store_->changed_.wait_until(lock, deadline) != std::cv_status::timeout) continue;
    if (std::chrono::steady_clock::now() < deadline) continue;
    if (!shelf.history.empty() && shelf.history.back().version > place_) continue;
    if (store_->version_ <= place_) return std::nullopt;
    // Nothing of ours, but versions have moved on: a bookmark keeps the reader's place from expiring.
    place_ = store_->version_;
    json bookmark = {{"kind", cluster::InfoOf(kind_).kind},
                     {"apiVersion", cluster::InfoOf(kind_).api_version},
                     {"metadata", {{"resourceVersion", std::to_string(place_)}}}};
    return WatchEvent{WatchEvent::Type::kBookmark, std::make_shared<const json>(std::move(bookmark))};
  }
}

void StoreWatch::Stop() {
  std::lock_guard lock(store_->mutex_);
  stopped_ = true;
  store_->changed_.notify_all();
}

}  // namespace trainyard::local
