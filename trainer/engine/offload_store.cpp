#include "trainer/engine/offload_store.h"

#include <algorithm>
#include <utility>

#include "trainer/device/device.h"
#include "trainer/dist/comm.h"

namespace trainyard::engine {
namespace {

constexpr int64_t RoundUp(int64_t bytes) {
  return (bytes + OffloadFile::kAlignment - 1) / OffloadFile::kAlignment * OffloadFile::kAlignment;
}

// A unit's tensors are in its window as long as this lives.
class Bound {
 public:
  Bound(Unit& unit, const std::vector<at::Tensor>& parts) : unit_(unit) { unit_.Bind(parts); }
  ~Bound() { unit_.Unbind(); }
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;

 private:
  Unit& unit_;
};

std::vector<int64_t> Offsets(const Layout& layout, const Units& units) {
  std::vector<int64_t> offsets = {0};
  const int64_t tensors = (layout.stored_master ? 1 : 0) + layout.states;
  for (const auto& unit : units) {
    const int64_t section = RoundUp(unit->trained() * static_cast<int64_t>(c10::elementSize(layout.master)));
    offsets.push_back(offsets.back() + tensors * section);
  }
  return offsets;
}

}  // namespace

OffloadStore::OffloadStore(const Layout& layout, Units& units, const OffloadPlace& place)
    : layout_(layout),
      units_(units),
      offsets_(Offsets(layout, units)),
      file_(place.directory, layout.world->rank(), offsets_.back(), place.calls) {
  for (size_t u = 0; u < units.size(); ++u) {
    const int64_t section = SectionBytes(static_cast<int>(u));
    if (layout.stored_master) layout.memory->Book(&MemoryReport::disk_master, section);
    layout.memory->Book(&MemoryReport::disk_optimizer, layout.states * section);
    window_bytes_ = std::max(window_bytes_, Tensors() * section);
  }
  if (window_bytes_ == 0) return;
  const int64_t bytes = std::min(static_cast<int>(units.size()), kWindows) * window_bytes_;
  memory_ = layout.device->PinnedEmpty({bytes + OffloadFile::kAlignment}, at::kByte);
  layout.memory->Book(&MemoryReport::host_windows, static_cast<int64_t>(memory_.nbytes()));
}

int64_t OffloadStore::SectionBytes(int unit) const {
  return Tensors() == 0 ? 0 : (offsets_[unit + 1] - offsets_[unit]) / Tensors();
}

char* OffloadStore::Window(int unit) const {
  auto* const start = static_cast<char*>(memory_.mutable_data_ptr());
  const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(start) % OffloadFile::kAlignment);
  return start + (OffloadFile::kAlignment - past) % OffloadFile::kAlignment + unit % kWindows * window_bytes_;
}

std::vector<at::Tensor> OffloadStore::Parts(int unit) const {
  const int64_t first = Window(unit) - static_cast<char*>(memory_.mutable_data_ptr());
  const int64_t section = SectionBytes(unit);
  const int64_t bytes = units_[unit]->trained() * static_cast<int64_t>(c10::elementSize(layout_.master));
  std::vector<at::Tensor> parts;
  for (int64_t t = 0; t < Tensors(); ++t) {
    parts.push_back(memory_.narrow(0, first + t * section, bytes).view(layout_.master));
  }
  return parts;
}

// After the last write from the same window, which may be of another pass.
OffloadFile::Ticket OffloadStore::StartRead(int unit, int64_t tensors) {
  return file_.Read(offsets_[unit], Window(unit), tensors * SectionBytes(unit), written_[unit % kWindows]);
}

void OffloadStore::ForEach(Access access, const std::function<void(int unit)>& fn) {
  const int64_t masters = layout_.stored_master ? 1 : 0;
  const int64_t reads = access == Access::kFill ? 0 : access == Access::kMasters ? masters : Tensors();
  const int64_t writes = access == Access::kFill ? masters : access == Access::kUpdate ? Tensors() : 0;
  const int count = static_cast<int>(units_.size());
  if (window_bytes_ == 0 || (reads == 0 && writes == 0)) {  // nothing of them is in the file
    for (int u = 0; u < count; ++u) fn(u);
    return;
  }
  OffloadFile::Ticket next = StartRead(0, reads);
  for (int u = 0; u < count; ++u) {
    const OffloadFile::Ticket read = std::exchange(next, {});
    if (u + 1 < count) next = StartRead(u + 1, reads);
    read.get();
    const Bound bound(*units_[u], Parts(u));
    fn(u);
    if (writes == 0) continue;
    if (masters > 0) units_[u]->TakeMasters();
    written_[u % kWindows] = file_.Write(offsets_[u], Window(u), writes * SectionBytes(u));
  }
}

void OffloadStore::Copy(int unit, int64_t tensor, int64_t first, int64_t count, void* to) const {
  const auto size = static_cast<int64_t>(c10::elementSize(layout_.master));
  file_.Copy(offsets_[unit] + tensor * SectionBytes(unit) + first * size, to, count * size);
}

}  // namespace trainyard::engine
