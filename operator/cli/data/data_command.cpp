#include "operator/cli/data/data_command.h"

#include <limits>
#include <map>
#include <memory>
#include <string>

#include "operator/cli/data/tokenize.h"
#include "operator/cli/run/interrupts.h"

namespace trainyard::cli {
namespace {

void AddTokenize(CLI::App& data, int& exit_code, Console console, const Clock& clock) {
  const auto flags = std::make_shared<TokenizeFlags>();
  const std::map<std::string, InputFormat> formats = {
      {"text", InputFormat::kText}, {"jsonl", InputFormat::kJsonl}, {"chat", InputFormat::kChat}};
  CLI::App* command = data.add_subcommand("tokenize", "Make a token file of text, JSON Lines or conversations");
  command
      ->add_option("--tokenizer", flags->tokenizer,
                   "A model's directory, a tokenizer.json, a SentencePiece model, or bytes")
      ->required();
  command->add_option("--input", flags->inputs, "Files, in their order")->required();
  command
      ->add_option(
          "--format", flags->format,
          "text: a file is a document; jsonl: a line is; chat: a line is a conversation, and its answers count")
      ->required()
      ->transform(CLI::Transformer(formats).description("{text,jsonl,chat}"))
      ->type_name("");
  command->add_option("--output", flags->output, "Token file to write; what was there is replaced at the end")
      ->required();
  command->add_option("--field", flags->field, "Of a JSON line; default: text, for chat messages");
  command->add_option("--template", flags->chat_template,
                      "Chat template: " + tokenizer::ChatStyleNames() + "; default: the one that the model names");
  command->add_option(
      "--separator", flags->separator,
      "Token behind each document, by name or number, or none; default: the end of a text, for chat one "
      "that no conversation holds");
  command->add_flag("--bos", flags->bos, "Also the token that begins a text before each document");
  const CLI::Range positive(int64_t{1}, std::numeric_limits<int64_t>::max());
  command
      ->add_option("--sequence-length", flags->sequence_length,
                   "training.sequenceLength: no document is cut; the rest of a sequence is filled up")
      ->check(positive);
  command->add_flag("--skip-long", flags->skip_long, "Leave out documents that are longer than a sequence");
  command->add_option("--threads", flags->threads, "Default: all cores")->check(CLI::Range(1, 1024));
  command->add_flag("--json", flags->json, "The summary as one JSON value");
  command->callback([flags, &exit_code, console, &clock] {
    const Interrupts interrupts;
    exit_code = RunDataTokenize(*flags, console, clock, [&] { return interrupts.count() > 0; });
  });
}

void AddShow(CLI::App& data, int& exit_code, Console console) {
  struct Flags {
    std::string path, tokenizer;
    int64_t tokens = 64;
    bool json = false;
  };
  const auto flags = std::make_shared<Flags>();
  CLI::App* command = data.add_subcommand("show", "Say what a token file holds");
  command->add_option("FILE", flags->path, "Token file")->required();
  command->add_option("--tokenizer", flags->tokenizer,
                      "Also show its first tokens as text; refused if it is another one");
  command->add_option("--tokens", flags->tokens, "How many")->check(CLI::Range(1, 1'000'000))->capture_default_str();
  command->add_flag("--json", flags->json, "The answer as one JSON value");
  command->callback([flags, &exit_code, console] {
    exit_code = RunDataShow(flags->path, flags->tokenizer, flags->tokens, flags->json, console);
  });
}

}  // namespace

void AddDataCommand(CLI::App& app, int& exit_code, Console console, const Clock& clock) {
  CLI::App* data = app.add_subcommand("data", "Make token files to train on, and look at them");
  data->require_subcommand(1);
  AddTokenize(*data, exit_code, console, clock);
  AddShow(*data, exit_code, console);
}

}  // namespace trainyard::cli
