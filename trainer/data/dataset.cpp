#include "trainer/data/dataset.h"

#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "trainer/data/mapped_file.h"
#include "trainer/data/token_file.h"

namespace trainyard::data {
namespace {

// A fingerprint reads this many blocks of this size per file, evenly spread, the first and the last among them: a few
// megabytes at most, whatever the size of the corpus.
constexpr int64_t kSampledBlocks = 64;
constexpr int64_t kBlockBytes = 64 << 10;

std::string HexDigits(uint64_t value) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(value));
  return digits;
}

struct File {
  std::string path;
  MappedFile mapping;
  bool target_bits = false;
  int64_t header = 0;   // bytes before the first token
  int width = 1;        // bytes per token
  int64_t vocab = 256;  // all tokens are below it
  int64_t tokens = 0;
  int64_t start = 0;  // position of its first token in the whole
};

void HashFile(XXH3_state_t* state, const File& file) {
  const int64_t bytes = file.mapping.bytes();
  const uint64_t sizes[2] = {static_cast<uint64_t>(bytes), static_cast<uint64_t>(file.width)};
  XXH3_64bits_update(state, sizes, sizeof sizes);
  if (bytes <= kSampledBlocks * kBlockBytes) {
    XXH3_64bits_update(state, file.mapping.data(), static_cast<size_t>(bytes));
    return;
  }
  for (int64_t i = 0; i < kSampledBlocks; ++i) {
    const int64_t at = i == kSampledBlocks - 1 ? bytes - kBlockBytes : (bytes - kBlockBytes) / (kSampledBlocks - 1) * i;
    XXH3_64bits_update(state, file.mapping.data() + at, static_cast<size_t>(kBlockBytes));
  }
}

template <typename T>
int64_t CopyTokens(const char* from, int64_t n, int64_t* out) {
  int64_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    T token;
    std::memcpy(&token, from + i * static_cast<int64_t>(sizeof(T)), sizeof token);
    out[i] = static_cast<int64_t>(token);
    largest = std::max(largest, out[i]);
  }
  return largest;
}

class MappedSource final : public TokenSource {
 public:
  MappedSource(std::vector<File> files, TokenOrigin origin, std::string fingerprint)
      : files_(std::move(files)), origin_(std::move(origin)), fingerprint_(std::move(fingerprint)) {}

  int64_t tokens() const override { return files_.back().start + files_.back().tokens; }
  const std::string& fingerprint() const override { return fingerprint_; }
  const TokenOrigin& origin() const override { return origin_; }
  bool has_target_bits() const override {
    return std::any_of(files_.begin(), files_.end(), [](const File& f) { return f.target_bits; });
  }

  Status CopyTargetBits(int64_t pos, int64_t n, uint8_t* out) const override {
    if (Status within = CheckRange(pos, n); !within) return within;
    for (auto file = FileOf(pos); n > 0; ++file) {
      const int64_t offset = pos - file->start;
      const int64_t count = std::min(n, file->tokens - offset);
      const char* bits = file->mapping.data() + file->header + file->tokens * file->width;
      for (int64_t i = offset; i < offset + count; ++i) {
        *out++ = file->target_bits ? static_cast<uint8_t>(bits[i / 8]) >> (i % 8) & 1 : 1;
      }
      pos += count;
      n -= count;
    }
    return {};
  }

  Status Copy(int64_t pos, int64_t n, int64_t* out) const override {
    if (Status within = CheckRange(pos, n); !within) return within;
    for (auto file = FileOf(pos); n > 0; ++file) {
      const int64_t offset = pos - file->start;
      const int64_t count = std::min(n, file->tokens - offset);
      const char* from = file->mapping.data() + file->header + offset * file->width;
      const int64_t largest = file->width == 1   ? CopyTokens<uint8_t>(from, count, out)
                              : file->width == 2 ? CopyTokens<uint16_t>(from, count, out)
                                                 : CopyTokens<uint32_t>(from, count, out);
      if (largest >= file->vocab) {
        const int64_t at = std::find_if(out, out + count, [&](int64_t t) { return t >= file->vocab; }) - out;
        return Fail(ErrorCode::kDataLoss, "data file " + file->path + ": token " + std::to_string(offset + at) +
                                              " (byte " + std::to_string(file->header + (offset + at) * file->width) +
                                              ") is " + std::to_string(out[at]) + ", not below its vocabulary of " +
                                              std::to_string(file->vocab) +
                                              "; the file is damaged or of another tokenizer");
      }
      pos += count;
      n -= count;
      out += count;
    }
    return {};
  }

 private:
  Status CheckRange(int64_t pos, int64_t n) const {
    if (pos >= 0 && n >= 0 && pos <= tokens() - n) return {};
    return Fail(ErrorCode::kInvalidArgument, "tokens " + std::to_string(pos) + " to " + std::to_string(pos + n) +
                                                 " of " + std::to_string(tokens()) + " do not exist");
  }
  std::vector<File>::const_iterator FileOf(int64_t pos) const {
    return std::upper_bound(files_.begin(), files_.end(), pos, [](int64_t at, const File& f) { return at < f.start; }) -
           1;
  }

  const std::vector<File> files_;
  const TokenOrigin origin_;
  const std::string fingerprint_;
};

// What its header says is filled in.
Status TakeHeader(File& file, int64_t vocab, TokenOrigin& origin) {
  const std::string_view head(file.mapping.data(),
                              static_cast<size_t>(std::min(file.mapping.bytes(), kTokenHeaderBytes)));
  const Result<TokenHeader> header = ParseTokenHeader(head, file.mapping.bytes());
  if (!header) return Fail(header.error().code, "data file " + file.path + " " + header.error().message);
  if (header->vocab > vocab) {
    return Fail(ErrorCode::kInvalidArgument, "data file " + file.path + " has a vocabulary of " +
                                                 std::to_string(header->vocab) + ", more than the model's " +
                                                 std::to_string(vocab) + "; raise model.vocabSize");
  }
  if (header->tokens == 0) return Fail(ErrorCode::kInvalidArgument, "data file " + file.path + " holds no tokens");
  file.header = header->bytes;
  file.width = header->bytes_per_token;
  file.vocab = header->vocab;
  file.tokens = header->tokens;
  file.target_bits = header->target_bits;
  const TokenOrigin its{header->tokenizer, file.path, header->separator, file.path};
  if (Status same = CheckSameOrigin(origin, its); !same) return same;
  if (its.tokenizer != 0) origin.tokenizer = its.tokenizer, origin.tokenizer_file = file.path;
  if (its.separator) origin.separator = its.separator, origin.separator_file = file.path;
  return {};
}

}  // namespace

Status CheckSameOrigin(const TokenOrigin& a, const TokenOrigin& b) {
  if (a.tokenizer != 0 && b.tokenizer != 0 && a.tokenizer != b.tokenizer) {
    return Fail(ErrorCode::kInvalidArgument, "data file " + b.tokenizer_file + " was made with another tokenizer (" +
                                                 HexDigits(b.tokenizer) + ") than " + a.tokenizer_file + " (" +
                                                 HexDigits(a.tokenizer) + "); make both with the same one");
  }
  if (a.separator && b.separator && *a.separator != *b.separator) {
    return Fail(ErrorCode::kInvalidArgument,
                "documents of " + b.separator_file + " end with token " + std::to_string(*b.separator) + ", those of " +
                    a.separator_file + " with " + std::to_string(*a.separator) + "; make both with the same separator");
  }
  return {};
}

Result<std::unique_ptr<TokenSource>> TokenSource::Open(Format format, const std::vector<std::string>& paths,
                                                       int64_t vocab) {
  if (paths.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "no data files are named");
  }
  if (format == Format::kText && vocab < 256) {
    return Fail(ErrorCode::kInvalidArgument, "text needs a vocabulary of 256, the model has " + std::to_string(vocab));
  }
  std::vector<File> files;
  TokenOrigin origin;
  int64_t start = 0;
  XXH3_state_t* state = XXH3_createState();
  XXH3_64bits_reset(state);
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> owner(state, XXH3_freeState);
  for (const std::string& path : paths) {
    Result<MappedFile> mapping = MappedFile::Open(path);
    if (!mapping) {
      return Fail(mapping.error());
    }
    File file;
    file.path = path;
    file.tokens = mapping->bytes();
    file.mapping = std::move(*mapping);
    if (format == Format::kTokens) {
      if (Status taken = TakeHeader(file, vocab, origin); !taken) return Fail(taken.error());
    }
    file.start = start;
    start += file.tokens;
    HashFile(state, file);
    files.push_back(std::move(file));
  }
  return std::make_unique<MappedSource>(std::move(files), std::move(origin), HexDigits(XXH3_64bits_digest(state)));
}

std::string Digest(const std::string& text) { return HexDigits(XXH3_64bits(text.data(), text.size())); }

}  // namespace trainyard::data
