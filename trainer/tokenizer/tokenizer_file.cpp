#include "trainer/tokenizer/tokenizer_file.h"

#include <sys/stat.h>
#include <xxhash.h>

#include <array>
#include <cstdio>
#include <string_view>
#include <utility>

#include "operator/base/files.h"

namespace trainyard::tokenizer {
namespace {

// In a model's directory, the first that is there.
constexpr std::array kFileNames = {"tokenizer.json", "tokenizer.model",         "spiece.model",
                                   "spm.model",      "sentencepiece.bpe.model", "sentencepiece.model"};

uint64_t Hash(std::string_view bytes) {
  const uint64_t hash = XXH3_64bits(bytes.data(), bytes.size());
  return hash == 0 ? 1 : hash;  // 0 means "not known" in a token file
}

std::optional<std::string> FileIn(const std::string& directory) {
  for (const char* name : kFileNames) {
    std::string file = directory + "/" + name;
    struct stat info{};
    if (stat(file.c_str(), &info) == 0) return file;
  }
  return std::nullopt;
}

// The file that `path` means.
Result<std::string> Locate(const std::string& path) {
  struct stat info{};
  if (stat(path.c_str(), &info) != 0) {
    return Fail(ErrorCode::kNotFound, "tokenizer " + path +
                                          " does not exist; name a tokenizer.json, a SentencePiece model, a directory "
                                          "with one of them, or bytes");
  }
  if (!S_ISDIR(info.st_mode)) return path;
  if (const auto file = FileIn(path)) return *file;
  const bool pieces = stat((path + "/merges.txt").c_str(), &info) == 0;
  return Fail(
      ErrorCode::kInvalidArgument,
      path + " holds no tokenizer.json and no tokenizer.model" +
          (pieces ? "; of vocab.json and merges.txt, AutoTokenizer.from_pretrained(...).save_pretrained(...) of "
                    "transformers makes a tokenizer.json"
                  : ""));
}

}  // namespace

Result<TokenizerFile> ReadTokenizerFile(const std::string& path) {
  Result<std::string> file = Locate(path);
  if (!file) return Fail(file.error());
  Result<std::string> bytes = ReadFile(*file);
  if (!bytes) return Fail(bytes.error().Wrap("tokenizer"));
  const uint64_t hash = Hash(*bytes);
  return TokenizerFile{std::move(*file), std::move(*bytes), hash};
}

Result<uint64_t> HashOf(const std::string& path) {
  if (path == kBytes) return Hash(kBytes);
  const Result<TokenizerFile> file = ReadTokenizerFile(path);
  if (!file) return Fail(file.error());
  return file->hash;
}

Result<std::optional<uint64_t>> HashIn(const std::string& directory) {
  const auto path = FileIn(directory);
  if (!path) return std::nullopt;
  const Result<uint64_t> hash = HashOf(*path);
  if (!hash) return Fail(hash.error());
  return *hash;
}

std::string HashText(uint64_t hash) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

}  // namespace trainyard::tokenizer
