#include "operator/cli/data/tokenize.h"

#include <algorithm>
#include <cstdio>
#include <ostream>
#include <thread>

#include <nlohmann/json.hpp>

#include "operator/cli/data/packer.h"
#include "operator/cli/data/pipeline.h"
#include "operator/cli/data/recipe.h"
#include "operator/cli/exit_codes.h"
#include "trainer/data/token_writer.h"
#include "trainer/tokenizer/tokenizer_file.h"

namespace trainyard::cli {
namespace {

using tokenizer::Tokenizer;

constexpr Milliseconds kLiveEvery{200};
constexpr Milliseconds kPlainEvery{10'000};

std::string Number(double value, const char* unit) {
  char text[48];
  std::snprintf(text, sizeof text, "%.1f %s", value, unit);
  return text;
}
std::string Megabytes(double bytes) { return bytes < 1e9 ? Number(bytes / 1e6, "MB") : Number(bytes / 1e9, "GB"); }
std::string Count(int64_t n, const char* what) { return std::to_string(n) + " " + what + (n == 1 ? "" : "s"); }

// How far it is: a live line, or a line now and then.
class Progress {
 public:
  Progress(Printer& printer, bool live, const Clock& clock, int64_t total)
      : printer_(printer), live_(live), clock_(clock), total_(total), start_(clock.Now()), shown_(start_) {}

  void Add(int64_t bytes) { done_ += bytes; }
  void Show(int64_t tokens) {
    const TimePoint now = clock_.Now();
    if (now - shown_ < (live_ ? kLiveEvery : kPlainEvery)) return;
    shown_ = now;
    if (live_) {
      printer_.Live(Text(now, tokens));
    } else {
      printer_.Note(Text(now, tokens), now);
    }
  }
  double seconds() const { return std::max(1e-3, static_cast<double>((clock_.Now() - start_).count()) / 1000); }
  int64_t done() const { return done_; }
  TimePoint start() const { return start_; }

 private:
  std::string Text(TimePoint now, int64_t tokens) const {
    const auto done = static_cast<double>(done_);
    const double seconds = std::max(1e-3, static_cast<double>((now - start_).count()) / 1000);
    const std::string rate = Megabytes(done / seconds) + "/s, " + Count(tokens, "token");
    if (total_ == 0 || done_ == 0) return "tokenized " + Megabytes(done) + ", " + rate;
    const double share = std::min(1.0, done / static_cast<double>(total_));
    const std::string bar(static_cast<size_t>(share * 20), '#');
    const auto left = Milliseconds(static_cast<int64_t>((static_cast<double>(total_) - done) / done * seconds * 1000));
    char head[96];
    std::snprintf(head, sizeof head, "[%-20s] %3.0f %%  ", bar.c_str(), share * 100);
    return head + Megabytes(done) + " of " + Megabytes(static_cast<double>(total_)) + ", " + rate + ", " +
           FormatDuration(std::max(left, Milliseconds(0))) + " left";
  }

  Printer& printer_;
  const bool live_;
  const Clock& clock_;
  const int64_t total_;
  const TimePoint start_;
  TimePoint shown_;
  int64_t done_ = 0;
};

data::TokenHeader HeaderOf(const TokenizeFlags& flags, const Recipe& recipe) {
  data::TokenHeader header;
  header.vocab = recipe.tokenizer->vocab();
  header.tokenizer = recipe.tokenizer->hash();
  header.target_bits = flags.format == InputFormat::kChat || flags.sequence_length > 0;
  if (recipe.separator) header.separator = *recipe.separator;
  return header;
}

// Where a text may be cut so that its blocks have the tokens that the whole would have.
BlockReader::Cut CutOf(const Recipe& recipe) {
  if (recipe.format != InputFormat::kText) return BlockReader::Cut::kLines;
  const auto ids = [&](const char* text) { return recipe.tokenizer->Encode(text).value_or(std::vector<uint32_t>()); };
  std::vector<uint32_t> parts = ids("word");
  const std::vector<uint32_t> second = ids("by"), whole = ids("word by");
  parts.insert(parts.end(), second.begin(), second.end());
  return parts == whole ? BlockReader::Cut::kOverSpace : BlockReader::Cut::kBeforeSpace;
}

class Run {
 public:
  Run(const TokenizeFlags& flags, Console console, const Clock& clock, const std::function<bool()>& interrupted)
      : flags_(flags),
        console_(console),
        clock_(clock),
        interrupted_(interrupted),
        printer_(console, flags.json, clock.Now()) {}

  int operator()() {
    const Status done = All();
    if (done) return kExitOk;
    if (stopped_) {
      printer_.Problem("stopped; " + flags_.output + " was not written");
      return kExitInterrupted;
    }
    printer_.Problem(done.error().message);
    return ExitCodeOf(done.error());
  }

 private:
  Status All() {
    const Result<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Open(flags_.tokenizer);
    if (!tokenizer) return Fail(tokenizer.error());
    const Result<Recipe> recipe = MakeRecipe(flags_, **tokenizer);
    if (!recipe) return Fail(recipe.error());
    const Result<int64_t> total = BlockReader::TotalBytes(flags_.inputs);
    if (!total) return Fail(total.error());
    Result<data::TokenWriter> writer = data::TokenWriter::Create(flags_.output, HeaderOf(flags_, *recipe));
    if (!writer) return Fail(writer.error());
    Packer packer(*writer, {flags_.sequence_length, recipe->separator.value_or(0), flags_.skip_long}, flags_.inputs);
    Progress progress(printer_, console_.live, clock_, *total);
    if (Status status = Stream(*recipe, *writer, packer, progress); !status) return status;
    if (Status status = packer.Close(); !status) return status;
    if (writer->tokens() == 0) {
      return Fail(ErrorCode::kInvalidArgument, "the input holds no documents: nothing was written");
    }
    if (Status status = writer->Finish(); !status) return status;
    Tell(*recipe, *writer, packer, progress);
    return {};
  }

  Status Stream(const Recipe& recipe, data::TokenWriter& writer, Packer& packer, Progress& progress) {
    BlockReader reader(flags_.inputs, CutOf(recipe));
    const int threads = flags_.threads > 0 ? flags_.threads : static_cast<int>(std::thread::hardware_concurrency());
    Pipeline pipeline([&] { return reader.Next(); }, [&](const Block& block) { return EncodeBlock(recipe, block); },
                      std::max(1, threads));
    for (EncodedBlock block;;) {
      if (interrupted_()) {
        stopped_ = true;
        return Fail(ErrorCode::kFailedPrecondition, "interrupted");
      }
      const Result<Pipeline::State> state = pipeline.Take(block, Milliseconds(100));
      if (!state) return Fail(state.error());
      if (*state == Pipeline::State::kEnd) return {};
      if (*state == Pipeline::State::kBlock) {
        if (Status status = packer.Append(block); !status) return status;
        progress.Add(block.bytes);
      }
      progress.Show(writer.tokens());
    }
  }

  void Tell(const Recipe& recipe, const data::TokenWriter& writer, const Packer& packer, const Progress& progress) {
    const auto bytes = static_cast<double>(progress.done());
    const double rate = bytes / progress.seconds();
    const bool bits = flags_.format == InputFormat::kChat || flags_.sequence_length > 0;
    if (flags_.json) {
      nlohmann::json answer = {{"output", flags_.output},
                               {"tokens", writer.tokens()},
                               {"documents", writer.documents()},
                               {"countedTokens", writer.counted()},
                               {"fillerTokens", packer.filled()},
                               {"skippedDocuments", packer.skipped()},
                               {"emptyDocuments", packer.empty()},
                               {"inputBytes", progress.done()},
                               {"seconds", progress.seconds()},
                               {"vocabSize", recipe.tokenizer->vocab()},
                               {"tokenizer", tokenizer::HashText(recipe.tokenizer->hash())}};
      if (recipe.separator) answer["documentSeparator"] = *recipe.separator;
      console_.out << answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n" << std::flush;
      return;
    }
    const auto note = [&](const std::string& text) { printer_.Note(text, clock_.Now()); };
    char each[32];
    std::snprintf(each, sizeof each, "%.2f", bytes / static_cast<double>(writer.tokens()));
    note(flags_.output + ": " + Count(writer.tokens(), "token") + " of " + Count(writer.documents(), "document") +
         ", " + Megabytes(bytes) + " at " + Megabytes(rate) + "/s, " + each + " bytes a token");
    note("vocabulary " + std::to_string(recipe.tokenizer->vocab()) + ", " + recipe.tokenizer->kind() + " tokenizer " +
         tokenizer::HashText(recipe.tokenizer->hash()) +
         (flags_.format == InputFormat::kChat ? ", chat template " + ChatStyleName(recipe.style) : ""));
    if (bits) {
      note(Count(writer.counted(), "token") + " count in the loss, " + std::to_string(packer.filled()) +
           " fill sequences up");
    }
    if (packer.skipped() > 0) note(Count(packer.skipped(), "document") + " longer than a sequence left out");
    if (packer.empty() > 0) note(Count(packer.empty(), "document") + " without text left out");
    if (recipe.separator) {
      note("documents end with token " + std::to_string(*recipe.separator) + " (" +
           recipe.tokenizer->NameOf(*recipe.separator) +
           "): data.documentSeparator: " + std::to_string(*recipe.separator) + " keeps them apart in training");
    }
  }

  const TokenizeFlags& flags_;
  const Console console_;
  const Clock& clock_;
  const std::function<bool()>& interrupted_;
  Printer printer_;
  bool stopped_ = false;
};

}  // namespace

int RunDataTokenize(const TokenizeFlags& flags, Console console, const Clock& clock,
                    const std::function<bool()>& interrupted) {
  return Run(flags, console, clock, interrupted)();
}

}  // namespace trainyard::cli
