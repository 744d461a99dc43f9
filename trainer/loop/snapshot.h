// The state of one step, held still for a save while training goes on. The save's thread copies it into host memory
// that is allocated once; the rank's thread helps only with what is not copied yet when the next update comes to it,
// unit by unit. Where that memory may not hold the whole state, the rest is written first and from where it lives: the
// next forward and backward pass go on beside that, and the update waits for it.
//
// Thread-safety: Begin, Holds and BeforeUpdate belong to the rank's thread, the others to the save's, which runs
// between Begin and Finished.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "trainer/checkpoint/format.h"
#include "trainer/device/device.h"
#include "trainer/engine/engine.h"
#include "trainer/loop/live_state.h"

namespace trainyard::loop {

class Snapshot {
 public:
  // Host memory of at most `budget` bytes; below 0: as much as the state has.
  Snapshot(device::Device& device, int64_t budget) : device_(device), budget_(budget) {}
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // The state as it is now. `in_place`: nothing is copied, since nothing changes before Finished.
  void Begin(engine::Engine& engine, bool in_place);
  // True while BeforeUpdate would have something to do.
  bool Holds(int unit);
  // Blocks until the state of the unit and of those before it is copied, and helps with that; and until everything that
  // is written in place has been written.
  void BeforeUpdate(int unit);

  const std::vector<checkpoint::TensorSlice>& model() const { return model_; }
  const std::vector<checkpoint::TensorSlice>& optim() const { return optim_; }
  // Copies everything that can be.
  void CopyAll();
  // The bytes of one of the slices, in host memory until the next call; SaveRequest::fetch. Error: kUnavailable when
  // state that is on disk cannot be read.
  Result<const void*> Bytes(const checkpoint::TensorSlice& slice);
  // The state is needed no more: it has been written, or the save has failed.
  void Finished();

  // Bytes of the state, and those of them that are written in place.
  int64_t bytes() const { return bytes_; }
  int64_t bytes_in_place() const { return bytes_in_place_; }
  // How long training has stood still for it. After Finished.
  double StallSeconds();

 private:
  struct Item {
    at::Tensor live;  // undefined: on disk
    int64_t bytes = 0;
    int unit = 0, index = 0, tensor = 0;
    int64_t place = -1;  // in host memory; below 0: written in place
    bool copied = false;
  };
  void AddItems(std::vector<LiveTensor> tensors, std::vector<checkpoint::TensorSlice>& slices);
  void PlaceItems();
  bool Allocate(int64_t bytes);
  // Returns what went wrong with a state that is on disk, or "".
  std::string Copy(const Item& item, void* to) const;
  // Copies items up to `unit` that nobody has taken yet.
  void CopyUpTo(int unit, std::unique_lock<std::mutex>& lock);
  bool CopiedUpTo(int unit) const;
  // Whether the update of the unit may change its state.
  bool Free(int unit) const;

  device::Device& device_;
  const int64_t budget_;
  char* memory_ = nullptr;
  int64_t memory_bytes_ = 0;
  bool mapped_ = false;    // memory_ is a mapping of ours, else that of pinned_
  at::Tensor pinned_;      // on a GPU
  at::Tensor scratch_;     // of a tensor of a GPU that is written in place
  bool in_place_ = false;  // all of it
  std::vector<checkpoint::TensorSlice> model_, optim_;
  std::unordered_map<std::string, size_t> index_;  // of a slice's name in items_
  std::unique_ptr<device::Event> begun_;
  const engine::Engine* engine_ = nullptr;
  int64_t bytes_ = 0, bytes_in_place_ = 0;

  std::mutex mutex_;  // guards everything below, and `copied` of items
  std::condition_variable changed_;
  std::vector<Item> items_;    // in the order in which they are written
  std::vector<size_t> order_;  // of those that are copied, in the order of updates
  size_t next_ = 0;            // in order_: what nobody has taken yet
  size_t first_copied_ = 0;    // in items_: those before are written in place
  size_t asked_ = 0;           // in items_: those before the last of these have been written
  std::string failed_;         // why a copy could not be made
  bool finished_ = true;
  bool updating_ = false;  // the rank's thread is in here
  double stall_ = 0;
};

}  // namespace trainyard::loop
