#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ostream>

#include <nlohmann/json.hpp>

#include "operator/cli/data/tokenize.h"
#include "operator/cli/exit_codes.h"
#include "trainer/data/token_file.h"
#include "trainer/tokenizer/tokenizer_file.h"

namespace trainyard::cli {
namespace {

struct Opened {
  data::TokenHeader header;
  std::vector<uint32_t> first;  // tokens
  std::vector<bool> counts;     // of them, which count in the loss; empty: all
};

// Reads the bits of the first tokens; they lie behind all tokens.
std::vector<bool> ReadBits(std::ifstream& file, const data::TokenHeader& header, size_t tokens) {
  if (!header.target_bits) return {};
  std::string bytes((tokens + 7) / 8, '\0');
  file.seekg(header.bytes + header.tokens * header.bytes_per_token);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  std::vector<bool> bits(tokens);
  for (size_t i = 0; i < tokens; ++i) bits[i] = (static_cast<uint8_t>(bytes[i / 8]) >> (i % 8) & 1) != 0;
  return bits;
}

Result<Opened> ReadStart(const std::string& path, int64_t tokens) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return Fail(ErrorCode::kInvalidArgument, "cannot read " + path + ": it is a directory, not a token file");
  }
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return Fail(ErrorCode::kNotFound, "cannot read " + path + ": " + std::strerror(errno));
  const int64_t bytes = file.tellg();
  file.seekg(0);
  std::string start(static_cast<size_t>(std::min(bytes, data::kTokenHeaderBytes)), '\0');
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  const Result<data::TokenHeader> header = data::ParseTokenHeader(start, bytes);
  if (!header) return Fail(header.error().code, path + " " + header.error().message);
  Opened opened{*header, {}, {}};
  file.seekg(header->bytes);
  for (int64_t i = 0; i < std::min(tokens, header->tokens); ++i) {
    std::array<char, 4> token{};
    file.read(token.data(), header->bytes_per_token);
    uint32_t id = 0;
    std::memcpy(&id, token.data(), sizeof id);
    opened.first.push_back(id);
  }
  opened.counts = ReadBits(file, *header, opened.first.size());
  if (!file) return Fail(ErrorCode::kDataLoss, "cannot read " + path + " to its end");
  return opened;
}

nlohmann::json AsJson(const data::TokenHeader& h) {
  nlohmann::json out = {{"tokens", h.tokens},
                        {"vocabSize", h.vocab},
                        {"bytesPerToken", h.bytes_per_token},
                        {"targetBits", h.target_bits}};
  if (h.documents > 0) out["documents"] = h.documents;
  if (h.tokenizer != 0) out["tokenizer"] = tokenizer::HashText(h.tokenizer);
  if (h.separator) out["documentSeparator"] = *h.separator;
  return out;
}

void Print(const data::TokenHeader& h, std::ostream& out) {
  out << "tokens      " << h.tokens << ", " << h.bytes_per_token << " bytes each"
      << (h.target_bits ? ", with a bit that says which count in the loss" : "") << "\n";
  out << "vocabulary  " << h.vocab << "\n";
  if (h.documents > 0) out << "documents   " << h.documents << "\n";
  out << "tokenizer   " << (h.tokenizer == 0 ? "not known" : tokenizer::HashText(h.tokenizer)) << "\n";
  if (h.separator) out << "separator   " << *h.separator << "\n";
}

struct Texts {
  std::string begins;                // the first tokens
  std::vector<std::string> learned;  // of them, each stretch that counts, where the file says which do
};

// Error: also kInvalidArgument where `path` is another tokenizer than the file's.
Result<Texts> TextsOf(const Opened& opened, const std::string& path) {
  const auto opened_tokenizer = tokenizer::Tokenizer::Open(path);
  if (!opened_tokenizer) return Fail(opened_tokenizer.error());
  const tokenizer::Tokenizer& tokenizer = **opened_tokenizer;
  if (opened.header.tokenizer != 0 && opened.header.tokenizer != tokenizer.hash()) {
    return Fail(ErrorCode::kInvalidArgument, "the file was made with tokenizer " +
                                                 tokenizer::HashText(opened.header.tokenizer) + ", " +
                                                 tokenizer.path() + " is " + tokenizer::HashText(tokenizer.hash()));
  }
  Result<std::string> begins = tokenizer.Spell(opened.first);
  if (!begins) return Fail(begins.error());
  Texts texts{std::move(*begins), {}};
  const std::vector<bool>& counts = opened.counts;
  for (auto at = counts.begin(); (at = std::find(at, counts.end(), true)) != counts.end();) {
    const auto end = std::find(at, counts.end(), false);
    const auto first = opened.first.begin();
    Result<std::string> stretch = tokenizer.Spell({first + (at - counts.begin()), first + (end - counts.begin())});
    if (!stretch) return Fail(stretch.error());
    texts.learned.push_back(std::move(*stretch));
    at = end;
  }
  return texts;
}

// One line, whatever it holds.
std::string Quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

int RunDataShow(const std::string& path, const std::string& tokenizer, int64_t tokens, bool json, Console console) {
  const auto fail = [&](const Error& error) {
    console.err << "trainyard: " << error.message << "\n";
    return ExitCodeOf(error);
  };
  const Result<Opened> opened = ReadStart(path, tokenizer.empty() ? 0 : tokens);
  if (!opened) return fail(opened.error());
  Result<Texts> texts = Texts();
  if (!tokenizer.empty()) texts = TextsOf(*opened, tokenizer);
  if (!texts) return fail(texts.error());
  if (json) {
    nlohmann::json answer = AsJson(opened->header);
    if (!tokenizer.empty()) {
      answer["tokensShown"] = opened->first, answer["text"] = texts->begins;
      if (opened->header.target_bits) answer["learned"] = texts->learned;
    }
    console.out << answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    return kExitOk;
  }
  Print(opened->header, console.out);
  if (!tokenizer.empty()) console.out << "begins      " << Quoted(texts->begins) << "\n";
  for (const std::string& stretch : texts->learned) console.out << "learned     " << Quoted(stretch) << "\n";
  return kExitOk;
}

}  // namespace trainyard::cli
