// The state that the checkpoint benchmarks save and load: matrices [4096, 1024] and norms [1024] with both moments of
// AdamW, split by rows among ranks. Thread-safety: plain values and free functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trainer/checkpoint/format.h"

namespace trainyard::bench {

inline constexpr int64_t kRows = 4096;
inline constexpr int64_t kHidden = 1024;

// One rank's part of `layers` matrices and as many norms.
struct Shards {
  std::vector<std::vector<float>> memory;
  std::vector<checkpoint::TensorSlice> model, optim;
  int64_t bytes = 0;

  // `fill`: with numbers without a pattern, so that a disk that compresses gains nothing.
  Shards(int64_t layers, int rank, int world, bool fill = true);
  std::vector<checkpoint::TensorSlice> all() const;
};

// Layers whose state has about so many megabytes.
int64_t LayersFor(int64_t megabytes);

// Prints one line and ends the program.
[[noreturn]] void Die(const std::string& message);
double Seconds(const std::function<void()>& work);

// Makes this program the owner of `root`, which is made.
void Own(const std::string& root);
// Saves what all ranks have, one after the other, and commits. Own(root) came first.
void Save(const std::string& root, int64_t step, const std::vector<Shards>& ranks);
// One rank's part from a checkpoint directory; returns the bytes read.
int64_t Load(const std::string& path, Shards& shards);
// Drops every file below `path` from the page cache, after writing back what is not on the disk yet.
void DropCache(const std::string& path);

}  // namespace trainyard::bench
