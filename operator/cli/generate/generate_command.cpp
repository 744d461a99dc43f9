#include "operator/cli/generate/generate_command.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <istream>
#include <iterator>
#include <limits>
#include <memory>
#include <ostream>

#include "operator/cli/checkpoints/locate.h"
#include "operator/cli/exit_codes.h"
#include "trainer/checkpoint/adapter_source.h"
#include "trainer/checkpoint/format.h"
#include "trainer/generate/request.h"
#include "trainer/tokenizer/chat.h"
#include "trainer/tokenizer/utf8.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostTokens = uint64_t{1} << 30;

struct GenerateFlags {
  generate::Request request;
  CheckpointRef checkpoint;
  std::string output = "text";
};

tl::unexpected<Error> Invalid(std::string message) { return Fail(ErrorCode::kInvalidArgument, std::move(message)); }

bool HasSteps(const std::string& directory) {
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    if (checkpoint::ParseStepDirectory(it->path().filename().string())) return true;
  }
  return false;
}

// Looks for what one takes for the other.
Status CheckPlaces(const GenerateFlags& flags) {
  const generate::Request& r = flags.request;
  std::error_code error;
  if (flags.checkpoint.path.empty() == r.model.empty()) {
    return Invalid(
        "give --checkpoint DIR, a directory of checkpoints of ours, or --model DIR, a Hugging Face directory");
  }
  if (flags.checkpoint.step && flags.checkpoint.path.empty()) return Invalid("--step is for --checkpoint");
  if (!r.model.empty()) {
    if (!fs::exists(r.model, error)) return Fail(ErrorCode::kNotFound, "--model: " + r.model + " does not exist");
    if (fs::exists(r.model + "/config.json", error)) return {};
    const bool ours = IsCheckpoint(r.model) || HasSteps(r.model);
    return Invalid("--model: " + r.model + " holds no config.json" +
                   (ours ? "; it is a directory of checkpoints: name it with --checkpoint" : ""));
  }
  const std::string& root = flags.checkpoint.path;
  if (fs::exists(root + "/config.json", error) && !IsCheckpoint(root) && !HasSteps(root)) {
    return Invalid("--checkpoint: " + root + " is a Hugging Face directory: name it with --model");
  }
  return {};
}

Status CheckTogether(const generate::Request& r) {
  if (!r.chat && !r.chat_template.empty()) return Invalid("--template is for --chat");
  if (!r.chat && !r.system.empty()) return Invalid("--system is for --chat");
  if (r.temperature == 0 && (r.top_k > 0 || r.top_p < 1)) {
    return Invalid("--top-k and --top-p choose among tokens at random, which needs --temperature above 0");
  }
  return {};
}

// Of a directory of checkpoints of an adapter the one that is meant, with those named that are bad. What is none stays:
// who opens it says better what is wrong.
Status FindAdapter(std::string& adapter, std::ostream& err) {
  if (adapter.empty() || checkpoint::IsPeft(adapter)) return {};
  Result<std::string> one = Locate({adapter, std::nullopt}, err);
  if (!one && one.error().code == ErrorCode::kNotFound) return {};
  if (!one) return Fail(one.error());
  adapter = std::move(*one);
  return {};
}

Status ReadPrompt(std::string& prompt, std::istream& in) {
  prompt.assign(std::istreambuf_iterator<char>(in), {});
  if (in.bad()) return Fail(ErrorCode::kUnavailable, "standard input cannot be read");
  if (Status text = tokenizer::CheckUtf8(prompt); !text) return Fail(text.error().Wrap("standard input"));
  return {};
}

// Reads a prompt of "-", finds the checkpoints.
Status Complete(GenerateFlags& flags, const GenerateContext& context) {
  generate::Request& r = flags.request;
  r.checkpoint = flags.checkpoint.path;
  if (Status text = generate::CheckText(r); !text) return text;
  if (Status places = CheckPlaces(flags); !places) return places;
  if (Status together = CheckTogether(r); !together) return together;
  if (r.prompt == "-") {
    if (Status read = ReadPrompt(r.prompt, context.in); !read) return read;
  }
  r.json = flags.output == "json";
  if (Status found = FindAdapter(r.adapter, context.err); !found) return found;
  if (flags.checkpoint.path.empty()) return {};
  Result<std::string> one = Locate(flags.checkpoint, context.err);
  if (!one) return Fail(one.error());
  r.checkpoint = std::move(*one);
  return {};
}

// What CLI11's own conversions take as well: "-1" and 2^64 as the largest number, "010" as 8.
CLI::Validator Whole(uint64_t least, uint64_t most) {
  const std::string range = "a whole number from " + std::to_string(least) + " to " + std::to_string(most);
  return {[=](std::string& text) {
            uint64_t value = 0;
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
            if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
              return text + " is not " + range;
            }
            text = std::to_string(value);
            return std::string();
          },
          "in [" + std::to_string(least) + " - " + std::to_string(most) + "]"};
}

// CLI::Range lets "nan" pass.
CLI::Validator Real(const char* least, const char* most) {
  return {[=](std::string& text) {
            double value = 0;
            const bool is_number = CLI::detail::lexical_cast(text, value);
            if (is_number && value >= std::stod(least) && value <= std::stod(most)) return std::string();
            return text + " is not a number from " + least + " to " + most;
          },
          std::string("in [") + least + " - " + most + "]"};
}

int RunGenerate(GenerateFlags flags, const GenerateContext& context) {
  if (Status complete = Complete(flags, context); !complete) return Complain(complete.error(), context.err);
  return Complain(context.become("trainyard-generate", generate::ToJson(flags.request)), context.err);
}

}  // namespace

Error BecomeProgram(const std::string& program, const std::string& argument) {
  std::error_code error;
  const std::string path = (fs::read_symlink("/proc/self/exe", error).parent_path() / program).string();
  std::string name = program, text = argument;
  char* const arguments[] = {name.data(), text.data(), nullptr};
  execv(path.c_str(), arguments);
  if (errno == E2BIG) {
    return {ErrorCode::kInvalidArgument, "the prompt is longer than a command line can be (about 120,000 bytes)"};
  }
  return {ErrorCode::kNotFound, "cannot start " + path + ": " + std::strerror(errno) +
                                    "; it comes with the trainer and lies beside this program"};
}

void AddGenerateCommand(CLI::App& app, int& exit_code, const GenerateContext& context) {
  const auto flags = std::make_shared<GenerateFlags>();
  generate::Request& r = flags->request;
  CLI::App* command = app.add_subcommand("generate", "Make text with a model on this machine");
  command->add_option("--checkpoint", flags->checkpoint.path,
                      "Checkpoint of ours, or a directory of them: the newest whole one");
  command->add_option("--step", flags->checkpoint.step, "Of --checkpoint, the one of this step")
      ->transform(Whole(0, std::numeric_limits<int64_t>::max()));
  command->add_option("--model", r.model, "Hugging Face directory");
  command->add_option("--adapter", r.adapter,
                      "Adapter of it: a directory in PEFT's layout, a checkpoint of ours, or a directory of those");
  command->add_option("--prompt", r.prompt, "Text to go on from; - reads standard input")->required();
  command->add_option("--tokens", r.tokens, "How many to make, at most")
      ->transform(Whole(1, kMostTokens))
      ->capture_default_str();
  command
      ->add_option("--temperature", r.temperature,
                   "Above 0: tokens are drawn at random, the higher the more evenly; 0: always the likeliest one")
      ->check(Real("0", "1e6"))
      ->capture_default_str();
  command->add_option("--top-k", r.top_k, "Draw from so many of the likeliest tokens only; 0: from all")
      ->transform(Whole(0, kMostTokens))
      ->capture_default_str();
  command
      ->add_option("--top-p", r.top_p,
                   "Draw from the fewest likeliest tokens that have this much of the probability together")
      ->check(Real("1e-9", "1"))
      ->capture_default_str();
  command->add_option("--seed", r.seed, "Of what is drawn: the same seed, the same text")
      ->transform(Whole(0, std::numeric_limits<uint64_t>::max()))
      ->capture_default_str();
  command->add_flag("--ignore-end", r.ignore_end, "Go on behind the token that ends a text");
  command->add_flag("--chat", r.chat, "The prompt is what a user says: the model's chat template is put around it");
  command->add_option("--template", r.chat_template,
                      "Of --chat: " + tokenizer::ChatStyleNames() + "; default: the one that the model names");
  command->add_option("--system", r.system, "Of --chat: the system's message before the prompt");
  command->add_option(
      "--tokenizer", r.tokenizer,
      "A model's directory, a tokenizer.json, a SentencePiece model, or bytes; default: the model's own");
  command->add_option("--precision", r.precision, "BF16 or FP32; default: as the weights are stored")
      ->check(CLI::IsMember({"BF16", "FP32"}));
  command->add_option("--threads", r.threads, "Default: one for each core")->transform(Whole(1, 1024));
  command->add_option("-o,--output", flags->output, "text, as it comes; or json: one value at the end")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  command->add_flag("-v,--verbose", r.verbose, "Also one line of figures on the error stream");
  command->callback([flags, &exit_code, context] { exit_code = RunGenerate(*flags, context); });
}

}  // namespace trainyard::cli
