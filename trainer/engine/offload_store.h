// What units have in the offload file: the optimizer state, and master weights where the compute type is another. A
// pass over the units has one at a time in a window of host memory: the next is read and the one before written while
// it is there. A unit's part of the file is one section of trained rows per tensor, masters first.
// Thread-safety: the rank's thread, but for Copy. Everything throws OffloadError when the file fails.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/ATen.h>

#include "trainer/engine/offload_file.h"
#include "trainer/engine/reduce.h"

namespace trainyard::engine {

// What a pass reads into a unit's tensors before it visits the unit, and what it writes back after.
enum class Access {
  kFill,     // nothing; masters
  kMasters,  // masters; nothing
  kRead,     // all; nothing
  kUpdate,   // all; all
};

class OffloadStore {
 public:
  // Reserves the file and the windows, and books both. `layout` and `units` must outlive the store.
  OffloadStore(const Layout& layout, Units& units, const OffloadPlace& place);

  // Calls fn(u) for one unit after another with its tensors in a window. Where masters are written back, the unit's
  // weights are made from them. When fn throws, what it did to that unit is lost.
  void ForEach(Access access, const std::function<void(int unit)>& fn);
  // Copies elements [first, first + count) of the unit's tensor `tensor`, as they are in the file after the writes so
  // far. Any thread, while no pass writes the unit.
  void Copy(int unit, int64_t tensor, int64_t first, int64_t count, void* to) const;

 private:
  static constexpr int kWindows = 3;

  int64_t SectionBytes(int unit) const;  // of one tensor
  int64_t Tensors() const { return (layout_.stored_master ? 1 : 0) + layout_.states; }
  char* Window(int unit) const;
  std::vector<at::Tensor> Parts(int unit) const;
  OffloadFile::Ticket StartRead(int unit, int64_t tensors);

  const Layout& layout_;
  Units& units_;
  std::vector<int64_t> offsets_;  // of the units in the file; the last entry is its size
  int64_t window_bytes_ = 0;
  at::Tensor memory_;  // of all windows, in bytes
  std::array<OffloadFile::Ticket, kWindows> written_;
  OffloadFile file_;  // after what it reads and writes, so that it goes first
};

}  // namespace trainyard::engine
