#include "trainer/data/token_file.h"

#include <bit>
#include <cstring>

namespace trainyard::data {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are mapped as they are");

constexpr std::string_view kMagic = "TYTOKEN1";

template <typename T>
T Get(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

template <typename T>
void Put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

Result<TokenHeader> ParseTokenHeader(std::string_view start, int64_t file_bytes) {
  if (static_cast<int64_t>(start.size()) < kTokenHeaderBytes || !start.starts_with(kMagic)) {
    return Fail(ErrorCode::kInvalidArgument,
                "is not a token file (no TYTOKEN1 header); use format Text for plain text");
  }
  const auto version = Get<uint32_t>(start, 8);
  const auto width = Get<uint32_t>(start, 12);
  const auto tokens = Get<uint64_t>(start, 16);
  const auto vocab = Get<uint64_t>(start, 24);
  if (version != 1) {
    return Fail(ErrorCode::kInvalidArgument,
                "is a token file of version " + std::to_string(version) + "; this trainer reads version 1");
  }
  if (width != 2 && width != 4) {
    return Fail(ErrorCode::kInvalidArgument, "says " + std::to_string(width) + " bytes per token; 2 or 4 are possible");
  }
  // Compared by division: the product may not fit.
  const auto body = static_cast<uint64_t>(file_bytes - kTokenHeaderBytes);
  if (body % width != 0 || body / width != tokens) {
    return Fail(ErrorCode::kDataLoss, "holds " + std::to_string(body) + " bytes of tokens where its header says " +
                                          std::to_string(tokens) + " tokens of " + std::to_string(width) +
                                          " bytes; copy or make it again");
  }
  if (vocab == 0 || vocab > uint64_t{1} << (8 * width)) {
    return Fail(ErrorCode::kInvalidArgument, "says a vocabulary of " + std::to_string(vocab) + ", which " +
                                                 std::to_string(width) + " bytes per token cannot hold");
  }
  return TokenHeader{static_cast<int>(width), static_cast<int64_t>(tokens), static_cast<int64_t>(vocab)};
}

Result<std::string> EncodeTokenFile(const std::vector<int64_t>& tokens, int64_t vocab) {
  const bool narrow = vocab <= 1 << 16;
  std::string bytes(kMagic);
  Put<uint32_t>(bytes, 1);
  Put<uint32_t>(bytes, narrow ? 2 : 4);
  Put<uint64_t>(bytes, tokens.size());
  Put<uint64_t>(bytes, static_cast<uint64_t>(vocab));
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab) {
      return Fail(ErrorCode::kInvalidArgument, "token " + std::to_string(tokens[i]) + " at " + std::to_string(i) +
                                                   " is not below the vocabulary of " + std::to_string(vocab));
    }
    if (narrow) {
      Put(bytes, static_cast<uint16_t>(tokens[i]));
    } else {
      Put(bytes, static_cast<uint32_t>(tokens[i]));
    }
  }
  return bytes;
}

}  // namespace trainyard::data
