#include "trainer/loop/snapshot.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "trainer/engine/offload_file.h"
#include "trainer/observe/log.h"

namespace trainyard::loop {
namespace {

// Of every tensor in host memory: a cache line, and what a GPU copies fastest.
constexpr int64_t kAlignment = 256;

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

double Since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

Snapshot::~Snapshot() {
  if (mapped_) munmap(memory_, static_cast<size_t>(memory_bytes_));
}

// On the CPU not through LibTorch: its figures are of what training holds.
bool Snapshot::Allocate(int64_t bytes) {
  if (device_.torch().is_cuda()) {
    try {
      pinned_ = device_.PinnedEmpty({bytes}, at::kByte);
    } catch (const c10::Error&) {
      return false;  // the caller says so and goes on without
    }
    memory_ = static_cast<char*>(pinned_.mutable_data_ptr());
  } else {
    void* memory =
        mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return false;
    madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // a hint: it is filled and read from end to end
    memory_ = static_cast<char*>(memory);
    mapped_ = true;
  }
  memory_bytes_ = bytes;
  return true;
}

void Snapshot::AddItems(std::vector<LiveTensor> tensors, std::vector<checkpoint::TensorSlice>& slices) {
  slices.clear();
  for (LiveTensor& tensor : tensors) {
    index_[tensor.slice.name] = items_.size();
    bytes_ += tensor.bytes;
    items_.push_back({.live = std::move(tensor.live),
                      .bytes = tensor.bytes,
                      .unit = tensor.unit,
                      .index = tensor.index,
                      .tensor = tensor.tensor});
    slices.push_back(std::move(tensor.slice));
  }
}

// As many as fit, from the last one on: updates are let go as soon as those in front are written.
void Snapshot::PlaceItems() {
  int64_t wanted = 0;
  for (const Item& item : items_) wanted += Aligned(item.bytes);
  const int64_t most = budget_ < 0 ? wanted : std::min(budget_, wanted);
  if (!in_place_ && memory_ == nullptr && most > 0 && !Allocate(most)) {
    observe::Warn(c10::str("no memory for a copy of ", most, " bytes of the state: training waits for each save"));
  }
  first_copied_ = items_.size();
  bytes_in_place_ = bytes_;
  if (in_place_) return;
  int64_t used = 0;
  while (first_copied_ > 0) {
    Item& item = items_[first_copied_ - 1];
    if (used + Aligned(item.bytes) > memory_bytes_) break;
    item.place = used;
    used += Aligned(item.bytes);
    bytes_in_place_ -= item.bytes;
    --first_copied_;
  }
}

void Snapshot::Begin(engine::Engine& engine, bool in_place) {
  const auto begin = std::chrono::steady_clock::now();
  std::lock_guard lock(mutex_);
  engine_ = &engine;
  in_place_ = in_place;
  items_.clear();
  index_.clear();
  bytes_ = 0;
  failed_.clear();
  LiveState state = LiveStateOf(engine);
  AddItems(std::move(state.model), model_);
  AddItems(std::move(state.optim), optim_);
  PlaceItems();
  order_.resize(items_.size() - first_copied_);
  std::iota(order_.begin(), order_.end(), first_copied_);
  std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) { return items_[a].unit < items_[b].unit; });
  next_ = asked_ = 0;
  finished_ = false;
  begun_ = device_.Record();
  stall_ = Since(begin);
}

std::string Snapshot::Copy(const Item& item, void* to) const {
  at::NoGradGuard no_grad;
  if (!item.live.defined()) {
    try {
      engine_->CopyShard(item.unit, item.index, item.tensor, to);
    } catch (const engine::OffloadError& error) {
      return error.what();
    }
  } else if (item.live.is_cpu() && item.live.is_contiguous()) {
    std::memcpy(to, item.live.const_data_ptr(), item.live.nbytes());
  } else {
    at::from_blob(to, item.live.sizes(), at::TensorOptions(item.live.scalar_type())).copy_(item.live);
  }
  return "";
}

void Snapshot::CopyUpTo(int unit, std::unique_lock<std::mutex>& lock) {
  while (!finished_ && next_ < order_.size() && items_[order_[next_]].unit <= unit) {
    Item& item = items_[order_[next_++]];
    lock.unlock();
    std::string failed = Copy(item, memory_ + item.place);
    lock.lock();
    if (failed_.empty()) failed_ = std::move(failed);
    item.copied = true;
    changed_.notify_all();
  }
}

bool Snapshot::CopiedUpTo(int unit) const {
  for (const size_t i : order_) {
    if (items_[i].unit > unit) break;
    if (!items_[i].copied) return false;
  }
  return true;
}

void Snapshot::CopyAll() {
  std::unique_lock lock(mutex_);
  lock.unlock();
  begun_->Order();  // this thread's copies come after what the rank's thread had queued
  lock.lock();
  CopyUpTo(std::numeric_limits<int>::max(), lock);
  changed_.wait(lock, [&] { return CopiedUpTo(std::numeric_limits<int>::max()); });
}

bool Snapshot::Free(int unit) const {
  const bool written = first_copied_ == 0 || asked_ > first_copied_;
  return finished_ || (written && CopiedUpTo(unit));
}

bool Snapshot::Holds(int unit) {
  std::lock_guard lock(mutex_);
  return !Free(unit);
}

void Snapshot::BeforeUpdate(int unit) {
  std::unique_lock lock(mutex_);
  if (Free(unit)) return;
  const auto begin = std::chrono::steady_clock::now();
  updating_ = true;
  CopyUpTo(unit, lock);
  changed_.wait(lock, [&] { return Free(unit); });
  updating_ = false;
  stall_ += Since(begin);
  changed_.notify_all();
}

Result<const void*> Snapshot::Bytes(const checkpoint::TensorSlice& slice) {
  std::unique_lock lock(mutex_);
  const size_t index = index_.at(slice.name);
  asked_ = index + 1;
  changed_.notify_all();
  Item& item = items_[index];
  if (item.place >= 0) {
    if (!item.copied) {  // the first one behind those that are written in place
      lock.unlock();
      CopyAll();
      lock.lock();
    }
    if (!failed_.empty()) return Fail(ErrorCode::kUnavailable, failed_);
    return memory_ + item.place;
  }
  lock.unlock();
  if (item.live.defined() && item.live.is_cpu() && item.live.is_contiguous()) return item.live.const_data_ptr();
  begun_->Order();
  scratch_ = at::empty({item.bytes}, at::kByte);
  if (const std::string failed = Copy(item, scratch_.mutable_data_ptr()); !failed.empty()) {
    return Fail(ErrorCode::kUnavailable, failed);
  }
  return scratch_.const_data_ptr();
}

void Snapshot::Finished() {
  std::unique_lock lock(mutex_);
  finished_ = true;
  // Copies under way end first: what they read may be freed after this.
  changed_.wait(lock, [&] {
    return std::all_of(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(next_),
                       [&](size_t i) { return items_[i].copied; });
  });
  scratch_.reset();
  items_.clear();
  order_.clear();
  next_ = 0;
  changed_.notify_all();
}

double Snapshot::StallSeconds() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !updating_; });
  return stall_;
}

}  // namespace trainyard::loop
