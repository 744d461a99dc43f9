#include "trainer/data/token_file.h"

#include <bit>
#include <cstring>

namespace trainyard::data {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are mapped as they are");

constexpr std::string_view kMagic = "TYTOKEN1";
constexpr int64_t kVersion1Bytes = 32;
constexpr uint32_t kTargetBits = 1;

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

// What version 2 says besides.
Status ParseSecond(std::string_view start, TokenHeader& header) {
  const auto flags = Get<uint32_t>(start, 40);
  const auto separator = Get<uint32_t>(start, 44);
  if ((flags & ~kTargetBits) != 0) {
    return Fail(ErrorCode::kInvalidArgument,
                "has flags " + std::to_string(flags) + ", which this trainer does not know");
  }
  if (separator > static_cast<uint64_t>(header.vocab)) {
    return Fail(ErrorCode::kInvalidArgument, "says that token " + std::to_string(separator - 1) +
                                                 " ends its documents, which is not below its vocabulary of " +
                                                 std::to_string(header.vocab));
  }
  header.tokenizer = Get<uint64_t>(start, 32);
  header.target_bits = (flags & kTargetBits) != 0;
  if (separator > 0) header.separator = separator - 1;
  header.documents = static_cast<int64_t>(Get<uint64_t>(start, 48));
  return {};
}

// Whether `body` bytes are the tokens and their bits. Compared by division: the products may not fit.
bool BodyFits(uint64_t body, uint64_t tokens, uint64_t width, bool target_bits) {
  if (tokens > body / width) return false;
  return body - tokens * width == (target_bits ? (tokens + 7) / 8 : 0);
}

}  // namespace

Result<TokenHeader> ParseTokenHeader(std::string_view start, int64_t file_bytes) {
  if (static_cast<int64_t>(start.size()) < kVersion1Bytes || !start.starts_with(kMagic)) {
    return Fail(ErrorCode::kInvalidArgument,
                "is not a token file (no TYTOKEN1 header); use format Text for plain text");
  }
  const auto version = Get<uint32_t>(start, 8);
  if (version != 1 && version != 2) {
    return Fail(ErrorCode::kInvalidArgument,
                "is a token file of version " + std::to_string(version) + "; this trainer reads versions 1 and 2");
  }
  TokenHeader header;
  header.bytes = version == 1 ? kVersion1Bytes : kTokenHeaderBytes;
  if (static_cast<int64_t>(start.size()) < header.bytes) {
    return Fail(ErrorCode::kDataLoss, "ends inside of its header; copy or make it again");
  }
  const auto width = Get<uint32_t>(start, 12);
  const auto tokens = Get<uint64_t>(start, 16);
  const auto vocab = Get<uint64_t>(start, 24);
  if (width != 2 && width != 4) {
    return Fail(ErrorCode::kInvalidArgument, "says " + std::to_string(width) + " bytes per token; 2 or 4 are possible");
  }
  if (vocab == 0 || vocab > uint64_t{1} << (8 * width)) {
    return Fail(ErrorCode::kInvalidArgument, "says a vocabulary of " + std::to_string(vocab) + ", which " +
                                                 std::to_string(width) + " bytes per token cannot hold");
  }
  header.bytes_per_token = static_cast<int>(width);
  header.vocab = static_cast<int64_t>(vocab);
  if (version == 2) {
    if (Status status = ParseSecond(start, header); !status) return Fail(status.error());
  }
  const auto body = static_cast<uint64_t>(file_bytes - header.bytes);
  if (!BodyFits(body, tokens, width, header.target_bits)) {
    return Fail(ErrorCode::kDataLoss, "holds " + std::to_string(body) + " bytes of tokens where its header says " +
                                          std::to_string(tokens) + " tokens of " + std::to_string(width) + " bytes" +
                                          (header.target_bits ? " and a bit for each" : "") +
                                          "; copy or make it again");
  }
  header.tokens = static_cast<int64_t>(tokens);
  return header;
}

std::string EncodeTokenHeader(const TokenHeader& header) {
  std::string bytes(kMagic);
  Put<uint32_t>(bytes, 2);
  Put<uint32_t>(bytes, static_cast<uint32_t>(header.bytes_per_token));
  Put<uint64_t>(bytes, static_cast<uint64_t>(header.tokens));
  Put<uint64_t>(bytes, static_cast<uint64_t>(header.vocab));
  Put<uint64_t>(bytes, header.tokenizer);
  Put<uint32_t>(bytes, header.target_bits ? kTargetBits : 0);
  Put<uint32_t>(bytes, header.separator ? static_cast<uint32_t>(*header.separator) + 1 : 0);
  Put<uint64_t>(bytes, static_cast<uint64_t>(header.documents));
  Put<uint64_t>(bytes, 0);
  return bytes;
}

Result<std::string> EncodeTokenFile(const std::vector<int64_t>& tokens, int64_t vocab) {
  TokenHeader header;
  header.bytes_per_token = TokenWidth(vocab);
  header.tokens = static_cast<int64_t>(tokens.size());
  header.vocab = vocab;
  std::string bytes = EncodeTokenHeader(header);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab) {
      return Fail(ErrorCode::kInvalidArgument, "token " + std::to_string(tokens[i]) + " at " + std::to_string(i) +
                                                   " is not below the vocabulary of " + std::to_string(vocab));
    }
    if (header.bytes_per_token == 2) {
      Put(bytes, static_cast<uint16_t>(tokens[i]));
    } else {
      Put(bytes, static_cast<uint32_t>(tokens[i]));
    }
  }
  return bytes;
}

}  // namespace trainyard::data
