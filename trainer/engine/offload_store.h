// What units have in the offload file: the optimizer state, and master weights where the compute type is another. A
// pass over the units has one at a time in a window of host memory: the next is read and the one before written while
// it is there. A unit's part of the file is a section of its masters, where they are in the file, and one for each of
// its sections of optimizer state. Thread-safety: the rank's thread, but for Copy. Everything throws OffloadError when
// the file fails.
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
  // Copies bytes [first, first + bytes) of the unit's section `section`, as they are in the file after the writes so
  // far. Any thread, while no pass writes the unit.
  void Copy(int unit, int64_t section, int64_t first, int64_t bytes, void* to) const;

 private:
  static constexpr int kWindows = 3;

  struct Section {
    int64_t bytes = 0;   // used
    int64_t offset = 0;  // in the unit's part of the file
  };
  struct Part {
    int64_t offset = 0, bytes = 0;  // in the file, whole blocks
    int64_t master_bytes = 0;       // of the first section, whole blocks; 0 where masters are not in the file
    std::vector<Section> sections;
  };
  static std::vector<Part> Place(const Layout& layout, const Units& units);

  char* Window(int unit) const;
  std::vector<at::Tensor> Sections(int unit) const;
  OffloadFile::Ticket StartRead(int unit, int64_t bytes);

  const Layout& layout_;
  Units& units_;
  const std::vector<Part> parts_;  // of the units
  int64_t window_bytes_ = 0;
  at::Tensor memory_;  // of all windows, in bytes
  std::array<OffloadFile::Ticket, kWindows> written_;
  OffloadFile file_;  // after what it reads and writes, so that it goes first
};

}  // namespace trainyard::engine
