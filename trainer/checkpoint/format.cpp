#include "trainer/checkpoint/format.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>

namespace trainyard::checkpoint {

std::optional<int64_t> DtypeBytes(std::string_view dtype) {
  struct Row {
    std::string_view name;
    int64_t bytes;
  };
  static constexpr std::array<Row, 14> kRows = {{{"F64", 8},
                                                 {"F32", 4},
                                                 {"F16", 2},
                                                 {"BF16", 2},
                                                 {"F8_E4M3", 1},
                                                 {"F8_E5M2", 1},
                                                 {"I64", 8},
                                                 {"I32", 4},
                                                 {"I16", 2},
                                                 {"I8", 1},
                                                 {"U8", 1},
                                                 {"U16", 2},
                                                 {"U32", 4},
                                                 {"BOOL", 1}}};
  for (const Row& row : kRows) {
    if (row.name == dtype) return row.bytes;
  }
  return std::nullopt;
}

std::optional<int64_t> ElementCount(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (int64_t n : shape) {
    if (n < 0 || __builtin_mul_overflow(count, n, &count)) return std::nullopt;
  }
  return count;
}

Status CheckSlice(const TensorSlice& slice) {
  const auto bad = [&](const std::string& what) {
    return Fail(ErrorCode::kInvalidArgument, "tensor \"" + slice.name + "\": " + what);
  };
  const auto printable = [](char c) { return c > ' ' && c < 0x7f; };
  if (slice.name.empty() || slice.name == "__metadata__" ||
      !std::all_of(slice.name.begin(), slice.name.end(), printable)) {
    return bad("a name is printable ASCII without spaces, and not __metadata__");
  }
  const std::optional<int64_t> element = DtypeBytes(slice.dtype);
  if (!element) return bad("safetensors has no dtype \"" + slice.dtype + "\"");
  const std::optional<int64_t> global = ElementCount(slice.global_shape);
  // Files hold less than 2^48 bytes, which keeps every sum of sizes far from overflow.
  if (!global || *global > (int64_t{1} << 48) / *element) return bad("its global shape is negative or too large");
  const size_t dims = slice.global_shape.size();
  if (slice.offset.size() != dims || slice.shape.size() != dims) {
    return bad("offset and shape need " + std::to_string(dims) + " dimensions");
  }
  for (size_t d = 0; d < dims; ++d) {
    const int64_t lo = slice.offset[d], n = slice.shape[d], all = slice.global_shape[d];
    if (lo < 0 || n < 0 || lo > all || n > all - lo) {
      return bad("[" + std::to_string(lo) + ", " + std::to_string(lo) + " + " + std::to_string(n) +
                 ") leaves dimension " + std::to_string(d) + " of " + std::to_string(all));
    }
  }
  return {};
}

std::string StepDirectory(int64_t step) {
  char text[40];
  std::snprintf(text, sizeof(text), "step-%08lld", static_cast<long long>(step));
  return text;
}

std::optional<int64_t> ParseStepDirectory(std::string_view name) {
  constexpr std::string_view kPrefix = "step-";
  if (name.substr(0, kPrefix.size()) != kPrefix) return std::nullopt;
  const std::string_view digits = name.substr(kPrefix.size());
  if (digits.size() < 8 || digits.size() > 18) return std::nullopt;
  int64_t step = 0;
  for (char c : digits) {
    if (c < '0' || c > '9') return std::nullopt;
    step = step * 10 + (c - '0');
  }
  if (StepDirectory(step) != name) return std::nullopt;  // leading zeros beyond eight digits
  return step;
}

std::string ShardPath(std::string_view group, int rank) {
  char text[64];
  std::snprintf(text, sizeof(text), "/shard-%05d-model-00001-of-00001.safetensors", rank + 1);
  return std::string(group) + text;
}

std::string HashPath(std::string_view shard_path) {
  constexpr std::string_view kSuffix = ".safetensors";
  return std::string(shard_path.substr(0, shard_path.size() - kSuffix.size())) + ".hashes";
}

int64_t BlockBytes(int64_t chunk_bytes) {
  const int64_t near =
      static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(chunk_bytes, 0) / 256)));
  return std::clamp(near, kMinBlockBytes, kMaxBlockBytes);
}

std::string HexDigest(uint64_t hash) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

uint64_t Digest(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace trainyard::checkpoint
