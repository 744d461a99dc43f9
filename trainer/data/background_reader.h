// Reads micro-batches ahead of the step that needs them, in a thread of its own behind a bounded queue. What comes out
// is a pure function of what is asked for: asking in another order than foreseen (a step that is done again) costs a
// wait and changes nothing. Thread-safety: one thread asks; the reader's own thread is inside.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "operator/base/error.h"
#include "trainer/data/batch.h"

namespace trainyard::data {

class BackgroundReader {
 public:
  struct Options {
    int64_t global_batch = 0;          // sequences by which a step moves the cursor
    std::vector<MicroBatchPlan> plan;  // what this rank reads of each step, in this order; not empty
    int64_t end = 0;                   // cursor at which training ends: nothing from there on is read ahead
    size_t depth = 4;                  // micro-batches that may wait in the queue
  };

  // Reading starts with the first Next. `reader` must outlive this object.
  BackgroundReader(const BatchReader& reader, Options options);
  // Stops after the micro-batch that is being read.
  ~BackgroundReader();
  BackgroundReader(const BackgroundReader&) = delete;
  BackgroundReader& operator=(const BackgroundReader&) = delete;

  // Micro-batch `index` of the plan for the step that begins at `cursor`: reader.Load(cursor + plan[index].first,
  // rows). Blocks until it is there. Error: that of the read, from each call that asks for what cannot be read; what it
  // throws is thrown here.
  Result<Batch> Next(int64_t cursor, size_t index);

 private:
  struct Place {
    int64_t cursor = -1;  // of the step
    size_t index = 0;
    bool operator==(const Place&) const = default;
  };
  Place After(Place place) const;
  Result<Batch> Load(Place place) const;
  void Read();  // the thread

  const BatchReader& reader_;
  const Options options_;
  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  struct Entry {
    Place place;
    Result<Batch> batch;
    std::exception_ptr thrown;  // in place of a batch: memory, bugs
  };
  std::deque<Entry> ready_;
  Place reading_;           // what the thread reads now or next
  bool filling_ = true;     // until the queue is full; then not before half of it is taken, for fewer wake-ups
  int64_t generation_ = 0;  // counts the times that reading began anew somewhere else
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace trainyard::data
