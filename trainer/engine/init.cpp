#include "trainer/engine/init.h"

#include <cmath>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace trainyard::engine {
namespace {

// Natural logarithm of a normal positive number: x = m * 2^e with m in [sqrt(1/2), sqrt(2)),
// log m = 2 atanh(s) with s = (m-1)/(m+1), |s| < 0.1716; the series to s^23 is below 1e-17.
double Log(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);  // exact; m in [0.5, 1)
  if (m < 0.70710678118654752) {
    m *= 2.0;
    --exponent;
  }
  const double s = (m - 1.0) / (m + 1.0), s2 = s * s;
  double sum = 0.0;
  for (int k = 23; k >= 1; k -= 2) sum = sum * s2 + 1.0 / k;
  return 2.0 * s * sum + exponent * 0.69314718055994531;
}

// cos and sin of 2*pi*u, u in [0, 1): the nearest eighth-turn multiple of a quarter is taken off, then Taylor's series.
void CosSinTurn(double u, double* c, double* s) {
  const int quarter = static_cast<int>(u * 4.0 + 0.5);         // 0..4
  const double x = (u - quarter * 0.25) * 6.2831853071795865;  // |x| <= pi/4
  const double x2 = x * x;
  double cosine = 0.0, sine = 0.0;
  for (int k = 16; k >= 2; k -= 2) cosine = (1.0 + cosine) * (-x2 / (k * (k - 1)));
  for (int k = 17; k >= 3; k -= 2) sine = (1.0 + sine) * (-x2 / (k * (k - 1)));
  cosine += 1.0;
  sine = (sine + 1.0) * x;
  switch (quarter & 3) {
    case 0:
      *c = cosine, *s = sine;
      break;
    case 1:
      *c = -sine, *s = cosine;
      break;
    case 2:
      *c = -cosine, *s = -sine;
      break;
    default:
      *c = sine, *s = -cosine;
      break;
  }
}

template <typename T>
void Fill(const ParamSpec& spec, uint64_t seed, int64_t lo, int64_t hi, T* out) {
  if (spec.init == Init::kOnes || spec.init == Init::kZeros) {
    const T value = spec.init == Init::kOnes ? T{1} : T{0};
    for (int64_t i = lo; i < hi; ++i) out[i - lo] = value;
    return;
  }
  const uint64_t key = StreamKey(seed, spec.name);
  // Elements 2k and 2k+1 come from block k.
  for (int64_t block = lo / 2; block * 2 < hi; ++block) {
    const auto b = static_cast<uint64_t>(block);
    const auto random = Philox({static_cast<uint32_t>(b), static_cast<uint32_t>(b >> 32), 0, 0},
                               {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
    const auto pair = spec.init == Init::kNormal ? NormalPair(random) : UniformPair(random);
    for (int j = 0; j < 2; ++j) {
      const int64_t i = block * 2 + j;
      if (i >= lo && i < hi) out[i - lo] = static_cast<T>(static_cast<float>(pair[j] * spec.init_std));
    }
  }
}

}  // namespace

std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c[0], b = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(a)};
    k[0] += 0x9E3779B9;
    k[1] += 0xBB67AE85;
  }
  return c;
}

std::array<double, 2> NormalPair(std::array<uint32_t, 4> r) {
  const uint64_t a = (uint64_t{r[0]} << 32 | r[1]) >> 11, b = (uint64_t{r[2]} << 32 | r[3]) >> 11;
  const double u = (static_cast<double>(a) + 1.0) * 0x1p-53;  // (0, 1]
  const double turn = static_cast<double>(b) * 0x1p-53;       // [0, 1)
  const double radius = std::sqrt(-2.0 * Log(u));
  double c = 0, s = 0;
  CosSinTurn(turn, &c, &s);
  return {radius * c, radius * s};
}

std::array<double, 2> UniformPair(std::array<uint32_t, 4> r) {
  const auto number = [](uint32_t high, uint32_t low) {
    return static_cast<double>((uint64_t{high} << 32 | low) >> 11) * 0x1p-52 - 1.0;
  };
  return {number(r[0], r[1]), number(r[2], r[3])};
}

uint64_t StreamKey(uint64_t seed, std::string_view name) {
  return XXH3_64bits_withSeed(name.data(), name.size(), seed);
}

void InitElements(const ParamSpec& spec, uint64_t seed, int64_t lo, int64_t hi, float* out) {
  Fill(spec, seed, lo, hi, out);
}
void InitElements(const ParamSpec& spec, uint64_t seed, int64_t lo, int64_t hi, double* out) {
  Fill(spec, seed, lo, hi, out);
}

}  // namespace trainyard::engine
