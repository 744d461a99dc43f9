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

}  // namespace

std::vector<OffloadStore::Part> OffloadStore::Place(const Layout& layout, const Units& units) {
  std::vector<Part> parts;
  int64_t offset = 0;
  for (const auto& unit : units) {
    Part part{.offset = offset, .bytes = 0, .master_bytes = 0, .sections = {}};
    const auto add = [&](int64_t bytes) {
      part.sections.push_back({bytes, part.bytes});
      part.bytes += RoundUp(bytes);
    };
    if (layout.stored_master) {
      add(unit->trained() * static_cast<int64_t>(c10::elementSize(layout.master)));
      part.master_bytes = part.bytes;
    }
    for (const int64_t bytes : unit->state_sections()) add(bytes);
    offset += part.bytes;
    parts.push_back(std::move(part));
  }
  return parts;
}

OffloadStore::OffloadStore(const Layout& layout, Units& units, const OffloadPlace& place)
    : layout_(layout),
      units_(units),
      parts_(Place(layout, units)),
      file_(place.directory, layout.world->rank(), parts_.empty() ? 0 : parts_.back().offset + parts_.back().bytes,
            place.calls) {
  for (const Part& part : parts_) {
    layout.memory->Book(&MemoryReport::disk_master, part.master_bytes);
    layout.memory->Book(&MemoryReport::disk_optimizer, part.bytes - part.master_bytes);
    window_bytes_ = std::max(window_bytes_, part.bytes);
  }
  if (window_bytes_ == 0) return;
  const int64_t bytes = std::min(static_cast<int>(units.size()), kWindows) * window_bytes_;
  memory_ = layout.device->PinnedEmpty({bytes + OffloadFile::kAlignment}, at::kByte);
  layout.memory->Book(&MemoryReport::host_windows, static_cast<int64_t>(memory_.nbytes()));
}

char* OffloadStore::Window(int unit) const {
  auto* const start = static_cast<char*>(memory_.mutable_data_ptr());
  const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(start) % OffloadFile::kAlignment);
  return start + (OffloadFile::kAlignment - past) % OffloadFile::kAlignment + unit % kWindows * window_bytes_;
}

std::vector<at::Tensor> OffloadStore::Sections(int unit) const {
  const int64_t first = Window(unit) - static_cast<char*>(memory_.mutable_data_ptr());
  std::vector<at::Tensor> sections;
  for (const Section& section : parts_[unit].sections) {
    sections.push_back(memory_.narrow(0, first + section.offset, section.bytes));
  }
  return sections;
}

// After the last write from the same window, which may be of another pass.
OffloadFile::Ticket OffloadStore::StartRead(int unit, int64_t bytes) {
  return file_.Read(parts_[unit].offset, Window(unit), bytes, written_[unit % kWindows]);
}

void OffloadStore::ForEach(Access access, const std::function<void(int unit)>& fn) {
  const auto reads = [&](int u) {
    const Part& part = parts_[u];
    return access == Access::kFill ? 0 : access == Access::kMasters ? part.master_bytes : part.bytes;
  };
  const auto writes = [&](int u) {
    const Part& part = parts_[u];
    return access == Access::kFill ? part.master_bytes : access == Access::kUpdate ? part.bytes : 0;
  };
  const int count = static_cast<int>(units_.size());
  const bool writes_any = access == Access::kUpdate || (access == Access::kFill && layout_.stored_master);
  const bool reads_any = access != Access::kFill && (access != Access::kMasters || layout_.stored_master);
  if (window_bytes_ == 0 || (!reads_any && !writes_any)) {  // nothing of them is in the file
    for (int u = 0; u < count; ++u) fn(u);
    return;
  }
  OffloadFile::Ticket next = StartRead(0, reads(0));
  for (int u = 0; u < count; ++u) {
    const OffloadFile::Ticket read = std::exchange(next, {});
    if (u + 1 < count) next = StartRead(u + 1, reads(u + 1));
    read.get();
    const Bound bound(*units_[u], Sections(u));
    fn(u);
    if (!writes_any) continue;
    if (layout_.stored_master) units_[u]->TakeMasters();
    written_[u % kWindows] = file_.Write(parts_[u].offset, Window(u), writes(u));
  }
}

void OffloadStore::Copy(int unit, int64_t section, int64_t first, int64_t bytes, void* to) const {
  const Part& part = parts_[unit];
  file_.Copy(part.offset + part.sections[static_cast<size_t>(section)].offset + first, to, bytes);
}

}  // namespace trainyard::engine
