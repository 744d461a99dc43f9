#include "operator/cli/data/tokenize.h"

#include <atomic>
#include <filesystem>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/base/files.h"
#include "operator/cli/exit_codes.h"
#include "tests/trainer/tokenizer/model_files.h"
#include "trainer/data/token_file.h"
#include "trainer/tokenizer/tokenizer_file.h"

namespace trainyard::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using tokenizer::ModelFiles;

struct Outcome {
  int code = 0;
  std::string out, err;
};

struct TokenFile {
  data::TokenHeader header;
  std::vector<uint32_t> ids;
  std::vector<int> counts;  // with target bits
};

class TokenizeTest : public ::testing::Test {
 protected:
  TokenizeTest() {
    flags_.tokenizer = "bytes";
    flags_.output = files_.Path("out.bin");
    flags_.threads = 2;
  }

  Outcome Tokenize(const std::function<bool()>& interrupted = [] { return false; }) {
    std::ostringstream out, err;
    const RealClock clock;
    Outcome outcome;
    outcome.code = RunDataTokenize(flags_, {out, err}, clock, interrupted);
    outcome.out = out.str(), outcome.err = err.str();
    return outcome;
  }
  // The one line of a run that fails, which leaves no file.
  std::string Refused() {
    const size_t before = Entries();
    const Outcome outcome = Tokenize();
    EXPECT_EQ(outcome.code, kExitBadInput);
    EXPECT_EQ(Entries(), before) << "something was left behind";
    EXPECT_THAT(outcome.err, StartsWith("trainyard: "));
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1);
    return outcome.err.substr(11, outcome.err.size() - 12);
  }
  size_t Entries() const {
    size_t n = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(files_.directory())) ++n;
    return n;
  }
  TokenFile Read() const {
    const std::string bytes = ReadFile(flags_.output).value();
    TokenFile file{data::ParseTokenHeader(bytes.substr(0, 64), static_cast<int64_t>(bytes.size())).value(), {}, {}};
    EXPECT_EQ(file.header.bytes_per_token, 2);
    const auto at = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(bytes[i])); };
    const auto tokens = static_cast<size_t>(file.header.tokens);
    for (size_t i = 0; i < tokens; ++i) file.ids.push_back(at(64 + 2 * i) | at(65 + 2 * i) << 8);
    for (size_t i = 0; file.header.target_bits && i < tokens; ++i) {
      file.counts.push_back(static_cast<int>(at(64 + 2 * tokens + i / 8) >> (i % 8) & 1));
    }
    return file;
  }

  const ModelFiles files_;
  TokenizeFlags flags_;
};

TEST_F(TokenizeTest, FilesOfTextAreDocuments) {
  flags_.inputs = {files_.Write("a", "ab"), files_.Write("b", "c")};
  flags_.separator = "0";
  const Outcome outcome = Tokenize();
  EXPECT_EQ(outcome.code, kExitOk) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr(flags_.output + ": 5 tokens of 2 documents"));
  EXPECT_THAT(outcome.out, HasSubstr("data.documentSeparator: 0"));
  const TokenFile file = Read();
  EXPECT_THAT(file.ids, ElementsAre('a', 'b', 0, 'c', 0));
  EXPECT_EQ(file.header.vocab, 256);
  EXPECT_EQ(file.header.separator, 0);
  EXPECT_EQ(file.header.documents, 2);
  EXPECT_EQ(file.header.tokenizer, tokenizer::HashOf("bytes").value());
  EXPECT_FALSE(file.header.target_bits);
}

// Many blocks, many threads: the bytes of the file, in order.
TEST_F(TokenizeTest, LargeFilesComeOutInOrder) {
  std::string text;
  for (int i = 0; text.size() < (9u << 20); ++i) text += "line " + std::to_string(i) + "\n";
  flags_.inputs = {files_.Write("large", text)};
  flags_.threads = 5;
  ASSERT_EQ(Tokenize().code, kExitOk);
  const TokenFile file = Read();
  ASSERT_EQ(file.ids.size(), text.size());
  EXPECT_TRUE(std::equal(text.begin(), text.end(), file.ids.begin()));
}

TEST_F(TokenizeTest, LinesOfJsonAreDocuments) {
  flags_.format = InputFormat::kJsonl;
  flags_.separator = "10";
  flags_.inputs = {
      files_.Write("a.jsonl", "{\"text\": \"a\\u0416\", \"id\": 1}\r\n\n{\"text\": \"\"}\n{\"text\": \"b\"}")};
  const Outcome outcome = Tokenize();
  EXPECT_EQ(outcome.code, kExitOk) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("1 document without text left out"));
  EXPECT_THAT(Read().ids, ElementsAre('a', 0xd0, 0x96, 10, 'b', 10));
}

TEST_F(TokenizeTest, NamesTheLineThatIsWrong) {
  flags_.format = InputFormat::kJsonl;
  const std::string good = "{\"text\": \"a\"}\n", path = files_.Path("x.jsonl");
  const auto line_3 = [&](const std::string& line) {
    flags_.inputs = {files_.Write("x.jsonl", good + good + line + "\n" + good)};
    return Refused();
  };
  EXPECT_EQ(line_3("{\"text\": \"a\""), path + ":3: broken JSON at byte 13 of the line");
  EXPECT_EQ(line_3("{\"text\": 1e999}"), path + ":3: broken JSON: a number that is too large");
  EXPECT_EQ(line_3("[1]"), path + ":3: is no JSON object");
  EXPECT_EQ(line_3("{\"body\": \"a\", \"id\": 3}"),
            path + ":3: has no field 'text'; it has: body, id; say with --field which one is meant");
  EXPECT_EQ(line_3("{\"text\": 3}"), path + ":3: field 'text' is no text");
  flags_.inputs = {files_.Write("empty.jsonl", "\n\n")};
  EXPECT_EQ(Refused(), "the input holds no documents: nothing was written");
}

TEST_F(TokenizeTest, ConversationsCountTheirAnswers) {
  flags_.format = InputFormat::kChat;
  flags_.chat_template = "chatml";
  flags_.inputs = {files_.Write(
      "chat.jsonl",
      R"({"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": [{"type": "text", "text": "A"}]}]})")};
  ASSERT_EQ(Tokenize().code, kExitOk);
  const TokenFile file = Read();
  std::string text, counted;
  for (size_t i = 0; i < file.ids.size(); ++i) {
    text += static_cast<char>(file.ids[i]);
    if (file.counts[i] != 0) counted += static_cast<char>(file.ids[i]);
  }
  EXPECT_EQ(text, "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n");
  EXPECT_EQ(counted, "A<|im_end|>");
}

TEST_F(TokenizeTest, NamesTheConversationThatIsWrong) {
  flags_.format = InputFormat::kChat;
  flags_.chat_template = "chatml";
  const std::string path = files_.Path("c.jsonl");
  const auto chat = [](const std::string& messages) { return "{\"messages\": [" + messages + "]}\n"; };
  const std::string good = chat(R"({"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"})");
  const auto line_2 = [&](const std::string& line) {
    flags_.inputs = {files_.Write("c.jsonl", good + line)};
    return Refused();
  };
  EXPECT_EQ(line_2("{\"messages\": [{\n"), path + ":2: broken JSON at byte 16 of the line");
  EXPECT_EQ(line_2(chat(R"({"role": "user", "content": "Q"}, {"role": "assistant", "content": ""})")),
            path + ":2: message 2 is an empty answer: there is nothing to learn from it");
  EXPECT_EQ(line_2(chat(R"({"role": "user"})")), path + ":2: message 1 has no content");
  EXPECT_EQ(line_2(chat(R"({"content": "Q"})")), path + ":2: message 1 is no object with a role");
  EXPECT_EQ(line_2(chat(R"({"role": "assistant", "content": null, "tool_calls": [1]})")),
            path + ":2: message 1 has tool_calls, which these templates cannot say");
  EXPECT_EQ(line_2(chat(R"({"role": "user", "content": [{"type": "image"}]})")),
            path + ":2: message 1: its content has a part that is no text");
  EXPECT_EQ(line_2("{\"messages\": []}"), path + ":2: field 'messages' is no list of messages");
  EXPECT_EQ(line_2("{\"conversations\": []}"),
            path + ":2: has no field 'messages'; it has: conversations; say with --field which one is meant");
  flags_.chat_template = "";
  EXPECT_THAT(line_2(good),
              StartsWith("nothing beside bytes has a chat template; say --template with one of chatml, "));
}

// With a sequence length no document is cut: each lies within one sequence, and filling counts nowhere.
TEST_F(TokenizeTest, SequencesHoldWholeDocuments) {
  flags_.format = InputFormat::kJsonl;
  flags_.separator = "0";
  flags_.sequence_length = 4;
  flags_.inputs = {files_.Write("a.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"cd\"}\n{\"text\": \"efg\"}\n")};
  ASSERT_EQ(Tokenize().code, kExitOk);
  const TokenFile file = Read();
  EXPECT_THAT(file.ids, ElementsAre('a', 'b', 0, 0, 'c', 'd', 0, 0, 'e', 'f', 'g', 0, 0));
  EXPECT_THAT(file.counts, ElementsAre(1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 1, 0));

  flags_.inputs = {files_.Write("long.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"abcd\"}\n")};
  std::filesystem::remove(flags_.output);
  EXPECT_EQ(Refused(), flags_.inputs[0] +
                           ":2: is 5 tokens long, more than --sequence-length 4; raise it, or leave such "
                           "out with --skip-long");
  flags_.skip_long = true;
  const Outcome outcome = Tokenize();
  EXPECT_EQ(outcome.code, kExitOk);
  EXPECT_THAT(outcome.out, HasSubstr("1 document longer than a sequence left out"));
  EXPECT_THAT(Read().ids, ElementsAre('a', 'b', 0, 0, 0));
}

TEST_F(TokenizeTest, FlagsThatDoNotGoTogether) {
  flags_.inputs = {files_.Write("a", "text")};
  flags_.sequence_length = 4;
  EXPECT_THAT(Refused(), StartsWith("--sequence-length is for --format jsonl and chat"));
  flags_.sequence_length = 0;
  flags_.skip_long = true;
  EXPECT_EQ(Refused(), "--skip-long needs --sequence-length");
  flags_.skip_long = false;
  flags_.chat_template = "chatml";
  EXPECT_EQ(Refused(), "--template is for --format chat");
  flags_.chat_template = "";
  flags_.field = "x";
  EXPECT_EQ(Refused(), "--field is for --format jsonl and chat");
  flags_.field = "";
  flags_.bos = true;
  EXPECT_EQ(Refused(), "--bos: nothing beside bytes says which token begins a text");
  flags_.bos = false;
  flags_.separator = "256";
  EXPECT_EQ(Refused(), "--separator: bytes has no token '256', and it is no number below 256");
  flags_.separator = "";
  flags_.output = flags_.inputs[0];
  EXPECT_EQ(Refused(), "--output " + flags_.output + " is one of the inputs");
}

TEST_F(TokenizeTest, AnInterruptLeavesNothing) {
  flags_.inputs = {files_.Write("large", std::string(64 << 20, 'x'))};
  std::atomic<int> asked{0};
  const Outcome outcome = Tokenize([&] { return ++asked > 1; });
  EXPECT_EQ(outcome.code, kExitInterrupted);
  EXPECT_EQ(outcome.err, "trainyard: stopped; " + flags_.output + " was not written\n");
  EXPECT_EQ(Entries(), 1U);
}

TEST_F(TokenizeTest, ShowTellsTheHeader) {
  flags_.inputs = {files_.Write("a", "Hi there")};
  flags_.separator = "0";
  ASSERT_EQ(Tokenize().code, kExitOk);
  std::ostringstream out, err;
  EXPECT_EQ(RunDataShow(flags_.output, "bytes", 2, false, {out, err}), kExitOk) << err.str();
  EXPECT_THAT(out.str(), HasSubstr("tokens      9, 2 bytes each\nvocabulary  256\ndocuments   1\n"));
  EXPECT_THAT(out.str(), HasSubstr("separator   0\nbegins      \"Hi\"\n"));
  EXPECT_EQ(RunDataShow(files_.Path("none"), "", 0, false, {out, err}), kExitNotFound);
  EXPECT_THAT(err.str(), HasSubstr("cannot read " + files_.Path("none") + ": No such file or directory\n"));
  EXPECT_EQ(RunDataShow(files_.directory(), "", 0, false, {out, err}), kExitBadInput);
  EXPECT_THAT(err.str(), HasSubstr("cannot read " + files_.directory() + ": it is a directory, not a token file\n"));
  EXPECT_EQ(RunDataShow(files_.Path("a"), "", 0, false, {out, err}), kExitBadInput);
  EXPECT_THAT(err.str(), HasSubstr(files_.Path("a") + " is not a token file"));
}

#ifdef TRAINYARD_BUILD_TOKENIZERS
TEST_F(TokenizeTest, TheModelsDirectorySaysSeparatorAndTemplate) {
  files_.Write("tokenizer.json", tokenizer::kWordTokenizer);
  flags_.tokenizer = files_.directory();
  flags_.inputs = {files_.Write("a", "one two")};
  EXPECT_EQ(Refused(), "nothing beside " + files_.Path("tokenizer.json") +
                           " says which token ends a text; name it with --separator, or say --separator none");
  flags_.bos = true;
  files_.Write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>", "chat_template":
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"})");
  ASSERT_EQ(Tokenize().code, kExitOk);
  EXPECT_THAT(Read().ids, ElementsAre(1, 8, 9, 2));
  EXPECT_EQ(Read().header.vocab, 41);

  flags_.bos = false;
  flags_.format = InputFormat::kChat;
  flags_.inputs = {files_.Write(
      "c.jsonl",
      R"({"messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two three"}]})")};
  ASSERT_EQ(Tokenize().code, kExitOk);
  EXPECT_THAT(Read().ids, ElementsAre(3, 5, 8, 4, 3, 6, 9, 10, 4, 40));
  EXPECT_THAT(Read().counts, ElementsAre(0, 0, 0, 0, 0, 0, 1, 1, 1, 0));
  EXPECT_EQ(Read().header.separator, 40) << "what no conversation holds";
  std::ostringstream out, err;
  EXPECT_EQ(RunDataShow(flags_.output, flags_.tokenizer, 100, false, {out, err}), kExitOk) << err.str();
  EXPECT_THAT(out.str(), HasSubstr("begins      \"<|im_start|> user one <|im_end|> <|im_start|> assistant two three "
                                   "<|im_end|> <|endoftext|>\"\nlearned     \"two three <|im_end|>\"\n"));

  flags_.chat_template = "llama3";
  EXPECT_EQ(Tokenize().err, "trainyard: " + files_.Path("tokenizer.json") +
                                " has no token '<|start_header_id|>', which the chat template llama3 needs\n");
}

TEST_F(TokenizeTest, ShowRefusesAnotherTokenizer) {
  flags_.inputs = {files_.Write("a", "text")};
  ASSERT_EQ(Tokenize().code, kExitOk);
  std::ostringstream out, err;
  EXPECT_EQ(RunDataShow(flags_.output, files_.Write("tokenizer.json", tokenizer::kWordTokenizer), 2, false, {out, err}),
            kExitBadInput);
  EXPECT_THAT(err.str(), HasSubstr("the file was made with tokenizer "));
}
#endif

}  // namespace
}  // namespace trainyard::cli
