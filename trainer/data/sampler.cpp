#include "trainer/data/sampler.h"

#include <bit>

namespace trainyard::data {
namespace {

// The finalizer of SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

constexpr int kRounds = 6;

}  // namespace

int64_t SampleCount(int64_t tokens, int64_t sequence_length) {
  return tokens <= sequence_length || sequence_length < 1 ? 0 : (tokens - 1) / sequence_length;
}

int64_t SampleIndex(uint64_t seed, int64_t samples, int64_t cursor) {
  const auto n = static_cast<uint64_t>(samples);
  const auto epoch = static_cast<uint64_t>(cursor / samples);
  uint64_t x = static_cast<uint64_t>(cursor % samples);
  if (n == 1) {
    return 0;
  }
  // Two halves of equal width cover [0, 4^half) with 4^half < 4 n, so a walk takes fewer than four steps on average.
  const int half = (std::bit_width(n - 1) + 1) / 2;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  const uint64_t key = Mix(Mix(seed + 0x9e3779b97f4a7c15ULL) + epoch * 0x9e3779b97f4a7c15ULL);
  do {
    uint64_t left = x >> half;
    uint64_t right = x & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const uint64_t next = left ^ (Mix(key + Mix(right + (round << 40))) & mask);
      left = right;
      right = next;
    }
    x = left << half | right;
  } while (x >= n);
  return static_cast<int64_t>(x);
}

}  // namespace trainyard::data
