#include "trainer/data/background_reader.h"

#include <utility>

namespace trainyard::data {

BackgroundReader::BackgroundReader(const BatchReader& reader, Options options)
    : reader_(reader), options_(std::move(options)), thread_([this] { Read(); }) {}

BackgroundReader::~BackgroundReader() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

BackgroundReader::Place BackgroundReader::After(Place place) const {
  if (place.index + 1 < options_.plan.size()) return {place.cursor, place.index + 1};
  return {place.cursor + options_.global_batch, 0};
}

Result<Batch> BackgroundReader::Load(Place place) const {
  const MicroBatchPlan& part = options_.plan[place.index];
  return reader_.Load(place.cursor + part.first, part.rows);
}

void BackgroundReader::Read() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] {
      // What follows an error is not wanted.
      const bool failed = !ready_.empty() && (!ready_.back().batch || ready_.back().thrown != nullptr);
      return stopping_ || (reading_.cursor >= 0 && reading_.cursor < options_.end && !failed && filling_);
    });
    if (stopping_) return;
    const Place place = reading_;
    const int64_t generation = generation_;
    lock.unlock();
    Entry entry{place, Batch{}, nullptr};
    try {
      entry.batch = Load(place);
    } catch (...) {
      entry.thrown = std::current_exception();
    }
    lock.lock();
    if (generation != generation_) continue;  // read for a place that nobody wants any more
    ready_.push_back(std::move(entry));
    reading_ = After(place);
    filling_ = ready_.size() < options_.depth;
    if (ready_.size() == 1) changed_.notify_all();  // else nobody waits for it
  }
}

Result<Batch> BackgroundReader::Next(int64_t cursor, size_t index) {
  const Place wanted{cursor, index};
  if (cursor >= options_.end) return Load(wanted);
  std::unique_lock lock(mutex_);
  if (wanted != (ready_.empty() ? reading_ : ready_.front().place)) {
    ready_.clear();
    reading_ = wanted;
    filling_ = true;
    ++generation_;
    changed_.notify_all();
  }
  changed_.wait(lock, [&] { return !ready_.empty(); });
  Entry entry = std::move(ready_.front());
  ready_.pop_front();
  if (ready_.size() <= options_.depth / 2) {
    filling_ = true;
    changed_.notify_all();
  }
  if (entry.thrown != nullptr) std::rethrow_exception(entry.thrown);
  return std::move(entry.batch);
}

}  // namespace trainyard::data
