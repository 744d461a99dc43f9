// The sum of many non-negative doubles without any rounding, so that it does not depend on their order or on how they
// were divided among ranks: a fixed-point number as wide as the range of double (Kulisch's accumulator), in words of 32
// bits that are held in 64, so that carries can wait. Two of them are added word by word: an all-reduce of integers
// does it. Thread-safety: plain values.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace trainyard::engine {

class ExactSum {
 public:
  static constexpr int kWords = 67;

  // x >= 0. At most 2^31 - 1 additions into all the accumulators that are added together.
  void Add(double x);

  // For the sum over ranks.
  std::span<int64_t, kWords> words() { return words_; }

  // The sum as a double, at most one unit in the last place away from it. NaN when something that was not finite was
  // added.
  double Value() const;

 private:
  // Word i counts 2^(32*i - 1074). The last one counts what was not finite.
  std::array<int64_t, kWords> words_{};
};

}  // namespace trainyard::engine
