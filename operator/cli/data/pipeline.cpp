#include "operator/cli/data/pipeline.h"

#include <exception>
#include <new>
#include <utility>

namespace trainyard::cli {

Pipeline::Pipeline(Read read, Work work, int threads)
    : read_(std::move(read)), work_(std::move(work)), window_(int64_t{4} * threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Encode(); });
}

Pipeline::~Pipeline() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Pipeline::Encode() {
  while (EncodeOne()) {
  }
}

// The number of the block that was read; none: there is nothing more to do for this thread. An error of reading is the
// result of the block that could not be read.
std::optional<int64_t> Pipeline::ReadOne(Block& block) {
  const std::lock_guard reader(reading_);
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopping_ || ended_ || begun_ - taken_ < window_; });
    if (stopping_ || ended_) return std::nullopt;
  }
  Result<std::optional<Block>> read = read_();
  const std::lock_guard lock(mutex_);
  if (read && *read) {
    block = std::move(**read);
    return begun_++;
  }
  ended_ = true;
  if (!read) done_.emplace(begun_++, Fail(read.error()));
  changed_.notify_all();
  return std::nullopt;
}

bool Pipeline::EncodeOne() {
  Block block;
  const std::optional<int64_t> number = ReadOne(block);
  if (!number) return false;
  const auto work = [&]() -> Result<EncodedBlock> {
    try {
      return work_(block);
    } catch (const std::bad_alloc&) {
      return Fail(ErrorCode::kResourceExhausted, "out of memory; fewer --threads need less");
    } catch (const std::exception& error) {
      return Fail(ErrorCode::kInternal, error.what());
    }
  };
  Result<EncodedBlock> encoded = work();
  const std::lock_guard lock(mutex_);
  if (!encoded) ended_ = true;  // what comes after it is not asked for
  done_.emplace(*number, std::move(encoded));
  changed_.notify_all();
  return true;
}

Result<Pipeline::State> Pipeline::Take(EncodedBlock& block, Milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const auto over = [&] { return ended_ && taken_ == begun_; };
  const auto there = [&] { return done_.contains(taken_); };
  if (!changed_.wait_for(lock, timeout, [&] { return there() || over(); })) return State::kWaiting;
  if (!there()) return State::kEnd;
  const auto found = done_.find(taken_);
  if (!found->second) return Fail(found->second.error());
  block = std::move(*found->second);
  done_.erase(found);
  ++taken_;
  changed_.notify_all();
  return State::kBlock;
}

}  // namespace trainyard::cli
