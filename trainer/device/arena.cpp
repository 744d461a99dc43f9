#include "trainer/device/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>

namespace trainyard::device {
namespace {

constexpr size_t kGrowth = 32 << 20;  // made usable at once; fewer addresses than that are not worth having

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

Arena::Arena(size_t reserve_bytes) {
  // No access yet: the kernel then counts nothing of it as promised memory.
  for (size_t bytes = RoundUp(reserve_bytes, kGrowth); bytes >= kGrowth; bytes = bytes / 2 / kGrowth * kGrowth) {
    void* const range = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) continue;
    base_ = static_cast<char*>(range);
    reserved_ = bytes;
    (void)madvise(base_, reserved_, MADV_HUGEPAGE);  // a wish: kernels without huge pages refuse it
    return;
  }
}

Arena::~Arena() {
  if (base_ != nullptr) munmap(base_, reserved_);
}

void* Arena::Allocate(size_t bytes) {
  if (bytes >= kSmallBytes) {
    if (void* const data = Take(RoundUp(bytes, kAlignment))) return data;
  }
  return std::aligned_alloc(kAlignment, RoundUp(bytes, kAlignment));
}

void* Arena::Take(size_t bytes) {
  std::lock_guard lock(mutex_);
  auto fit = free_by_size_.lower_bound({bytes, nullptr});
  if (fit == free_by_size_.end()) {
    if (!Grow(bytes)) return nullptr;
    fit = std::prev(free_by_size_.end());
  }
  const auto [size, at] = *fit;
  RemoveFree(free_by_address_.find(at));
  if (size > bytes) AddFree(at + bytes, size - bytes);
  taken_.emplace(at, bytes);
  live_ += bytes;
  return at;
}

// Moves the top up so that the last gap has `bytes`.
bool Arena::Grow(size_t bytes) {
  size_t gap = 0;
  if (!free_by_address_.empty()) {
    const auto last = std::prev(free_by_address_.end());
    if (last->first + last->second == base_ + top_) gap = last->second;
  }
  const size_t more = bytes - gap;
  if (more > reserved_ - top_) return false;
  if (top_ + more > usable_) {
    const size_t usable = std::min(reserved_, RoundUp(top_ + more, kGrowth));
    if (mprotect(base_ + usable_, usable - usable_, PROT_READ | PROT_WRITE) != 0) return false;
    usable_ = usable;
  }
  char* const at = base_ + top_;
  top_ += more;
  AddFree(at, more);
  return true;
}

void Arena::Free(void* data) {
  char* const at = static_cast<char*>(data);
  if (at < base_ || at >= base_ + reserved_) {
    std::free(data);
    return;
  }
  std::lock_guard lock(mutex_);
  const auto block = taken_.find(at);
  if (block == taken_.end()) std::abort();  // freed twice: going on would hand the same bytes to two tensors
  const size_t bytes = block->second;
  taken_.erase(block);
  live_ -= bytes;
  AddFree(at, bytes);
}

// A gap, merged with its neighbours.
void Arena::AddFree(char* at, size_t bytes) {
  auto next = free_by_address_.lower_bound(at);
  if (next != free_by_address_.end() && at + bytes == next->first) {
    bytes += next->second;
    const auto merged = next++;
    RemoveFree(merged);
  }
  if (next != free_by_address_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == at) {
      at = before->first;
      bytes += before->second;
      RemoveFree(before);
    }
  }
  free_by_address_.emplace(at, bytes);
  free_by_size_.emplace(bytes, at);
}

void Arena::RemoveFree(std::map<char*, size_t>::iterator block) {
  free_by_size_.erase({block->second, block->first});
  free_by_address_.erase(block);
}

Arena::Stats Arena::stats() const {
  std::lock_guard lock(mutex_);
  return {.reserved = reserved_, .mapped = top_, .live = live_};
}

}  // namespace trainyard::device
