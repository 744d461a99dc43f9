#include "trainer/engine/exact_sum.h"

#include <bit>
#include <cmath>
#include <limits>

namespace trainyard::engine {
namespace {

constexpr int kWordBits = 32;
constexpr int kLowest = -1074;  // exponent of the smallest double

}  // namespace

void ExactSum::Add(double x) {
  const auto bits = std::bit_cast<uint64_t>(x);
  const int exponent = static_cast<int>(bits >> 52) & 0x7ff;
  if (exponent == 0x7ff) {
    ++words_.back();
    return;
  }
  uint64_t mantissa = bits & ((uint64_t{1} << 52) - 1);
  if (exponent > 0) mantissa |= uint64_t{1} << 52;
  const int position = exponent > 0 ? exponent - 1 : 0;  // of the mantissa's last bit, counted from the lowest
  const int word = position / kWordBits, offset = position % kWordBits;
  // 53 bits moved by up to 31: three words.
  const uint64_t low = (mantissa << offset) & 0xffffffffU;
  const uint64_t rest = mantissa >> (kWordBits - offset);  // offset 0: moved by 32
  words_[word] += static_cast<int64_t>(low);
  words_[word + 1] += static_cast<int64_t>(rest & 0xffffffffU);
  words_[word + 2] += static_cast<int64_t>(rest >> kWordBits);
}

double ExactSum::Value() const {
  if (words_.back() != 0) return std::numeric_limits<double>::quiet_NaN();
  // Carries go up, so that every word becomes a digit; the last one's place is free to take what is left.
  std::array<uint32_t, kWords> digits{};
  uint64_t carry = 0;
  for (int i = 0; i < kWords; ++i) {
    const uint64_t word = static_cast<uint64_t>(words_[i]) + carry;
    digits[i] = static_cast<uint32_t>(word);
    carry = word >> kWordBits;
  }
  double value = 0;  // from the highest digit down: what comes later is below what was rounded
  for (int i = kWords; i-- > 0;) value += std::ldexp(static_cast<double>(digits[i]), kWordBits * i + kLowest);
  return value;
}

}  // namespace trainyard::engine
