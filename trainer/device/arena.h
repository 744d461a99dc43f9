// Memory for tensors on the CPU, kept for reuse. A training step asks for the same megabytes again and again; malloc
// gives them back to the kernel in between, which then clears and maps every page anew. Here blocks come from one
// reserved range of addresses, best fit first, are merged when freed and stay mapped, in huge pages where the kernel
// has them. What is resident is the highest sum of live blocks so far and the gaps between them; nothing is given back.
// Thread-safety: all methods may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace trainyard::device {

class Arena {
 public:
  static constexpr size_t kAlignment = 64;         // of every block: a cache line, and the widest vector
  static constexpr size_t kSmallBytes = 64 << 10;  // malloc is good at blocks below this size and keeps them

  // Reserves addresses, not memory: up to `reserve_bytes`, less where the process may not have so many. What does not
  // fit comes from malloc.
  explicit Arena(size_t reserve_bytes);
  // Blocks must not outlive the arena.
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // `bytes` > 0, not cleared. Null when there is no memory.
  void* Allocate(size_t bytes);
  void Free(void* data);

  // Blocks below kSmallBytes and those that did not fit are not in these figures.
  struct Stats {
    size_t reserved = 0;
    size_t mapped = 0;  // from the start of the range to the end of the highest block so far
    size_t live = 0;    // of it in blocks that are not freed
  };
  Stats stats() const;

 private:
  void* Take(size_t bytes);
  bool Grow(size_t bytes);
  void AddFree(char* at, size_t bytes);
  void RemoveFree(std::map<char*, size_t>::iterator block);

  char* base_ = nullptr;
  size_t reserved_ = 0;
  mutable std::mutex mutex_;  // guards everything below
  size_t usable_ = 0;         // bytes from base_ that may be written
  size_t top_ = 0;            // bytes from base_ that blocks have ever reached
  size_t live_ = 0;
  std::map<char*, size_t> free_by_address_;  // gaps below top_, none next to another
  std::set<std::pair<size_t, char*>> free_by_size_;
  std::map<char*, size_t> taken_;
};

}  // namespace trainyard::device
