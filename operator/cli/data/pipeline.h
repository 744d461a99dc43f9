// Encodes blocks on several threads and hands them out in the order in which they were read. A bounded number of blocks
// is under way, whatever the size of the input. Thread-safety: one thread takes; the threads are inside.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "operator/base/clock.h"
#include "operator/base/error.h"
#include "operator/cli/data/encode.h"

namespace trainyard::cli {

class Pipeline {
 public:
  using Read = std::function<Result<std::optional<Block>>()>;  // called by one thread at a time
  using Work = std::function<Result<EncodedBlock>(const Block&)>;

  // `threads` >= 1.
  Pipeline(Read read, Work work, int threads);
  // Stops after the blocks that are being encoded.
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  enum class State { kBlock, kEnd, kWaiting };
  // The next block into `block`, waiting at most `timeout` for it. Error: the first one in the order of the input, of
  // reading or of encoding; nothing comes after it.
  Result<State> Take(EncodedBlock& block, Milliseconds timeout);

 private:
  void Encode();  // each thread
  bool EncodeOne();
  std::optional<int64_t> ReadOne(Block& block);

  const Read read_;
  const Work work_;
  const int64_t window_;  // blocks that may be under way
  std::mutex reading_;    // taken before mutex_; guards read_
  std::mutex mutex_;      // guards everything below
  std::condition_variable changed_;
  int64_t begun_ = 0;
  int64_t taken_ = 0;
  bool ended_ = false;  // nothing more is to be read
  bool stopping_ = false;
  std::map<int64_t, Result<EncodedBlock>> done_;
  std::vector<std::thread> threads_;
};

}  // namespace trainyard::cli
