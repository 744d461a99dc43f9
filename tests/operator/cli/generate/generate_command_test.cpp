// From the flags of `trainyard generate` to what its program is asked.
#include "operator/cli/generate/generate_command.h"

#include <map>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/cli/temporary_directory.h"
#include "trainer/generate/request.h"

namespace trainyard::cli {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class GenerateCommand : public testing::Test {
 protected:
  GenerateCommand() { dir_.Write("published/config.json", "{}"); }

  // The request; none: the command ended before.
  std::optional<generate::Request> Asked(const std::string& arguments, const std::string& input = "") {
    CLI::App app;
    code_ = 0;
    program_.clear();
    std::istringstream in(input);
    std::ostringstream err;
    std::optional<generate::Request> asked;
    AddGenerateCommand(app, code_, {in, err, [&](const std::string& program, const std::string& argument) {
                                      program_ = program;
                                      asked = generate::ParseRequest(argument).value();
                                      return Error{ErrorCode::kNotFound, "it is a test"};
                                    }});
    app.parse("generate " + arguments);
    error_ = err.str();
    return asked;
  }
  std::string Published() const { return dir_ / "published"; }

  TemporaryDirectory dir_;
  int code_ = 0;
  std::string error_, program_;
};

TEST_F(GenerateCommand, AsksWithTheFlags) {
  const auto plain = Asked("--model " + Published() + " --prompt hello");
  ASSERT_TRUE(plain);
  generate::Request expected;
  expected.model = Published(), expected.prompt = "hello";
  EXPECT_EQ(*plain, expected);
  EXPECT_EQ(program_, "trainyard-generate");
  // What cannot be started is an error of one line.
  EXPECT_EQ(code_, 4);
  EXPECT_EQ(error_, "trainyard: it is a test\n");

  expected.tokens = 9, expected.temperature = 0.5, expected.top_k = 40, expected.top_p = 0.9, expected.seed = 11;
  expected.ignore_end = expected.chat = expected.json = expected.verbose = true;
  expected.chat_template = "qwen3", expected.system = "brief", expected.tokenizer = "bytes";
  expected.precision = "BF16", expected.threads = 2, expected.adapter = "lora";
  EXPECT_EQ(
      *Asked(
          "--model " + Published() +
          " --prompt hello --tokens 9 --temperature 0.5 --top-k 40 --top-p 0.9 --seed 11 --ignore-end --chat "
          "--template qwen3 --system brief --tokenizer bytes --precision BF16 --threads 2 --adapter lora -o json -v"),
      expected);
}

TEST_F(GenerateCommand, ReadsThePromptFromStandardInput) {
  EXPECT_EQ(Asked("--model " + Published() + " --prompt -", "two\nlines\n")->prompt, "two\nlines\n");
}

TEST_F(GenerateCommand, TellsOneKindOfDirectoryFromTheOther) {
  const auto problem = [&](const std::string& arguments) {
    EXPECT_FALSE(Asked(arguments + " --prompt x")) << arguments;
    return error_;
  };
  dir_.Write("job/step-00000010/manifest.json", "{}");
  EXPECT_THAT(problem(""), HasSubstr("give --checkpoint DIR"));
  EXPECT_THAT(problem("--checkpoint a --model b"), HasSubstr("give --checkpoint DIR"));
  EXPECT_THAT(problem("--model " + Published() + " --step 3"), HasSubstr("--step is for --checkpoint"));
  EXPECT_THAT(problem("--model " + (dir_ / "job")), EndsWith("name it with --checkpoint\n"));
  EXPECT_THAT(problem("--model " + (dir_ / "job/step-00000010")), EndsWith("name it with --checkpoint\n"));
  EXPECT_THAT(problem("--model " + dir_.path()), EndsWith("holds no config.json\n"));
  EXPECT_EQ(code_, 2);
  EXPECT_THAT(problem("--checkpoint " + Published()), EndsWith("name it with --model\n"));
  EXPECT_THAT(problem("--model " + (dir_ / "none")), HasSubstr("none does not exist"));
  EXPECT_EQ(code_, 4);
  EXPECT_THAT(problem("--checkpoint " + (dir_ / "none")), HasSubstr("none does not exist"));
  EXPECT_EQ(code_, 4);
  EXPECT_THAT(problem("--checkpoint " + (dir_ / "job") + " --step 4"), HasSubstr("there is no checkpoint of step 4"));
  EXPECT_THAT(problem("--checkpoint " + (dir_ / "job")), HasSubstr("step-00000010 is bad"));
  EXPECT_EQ(code_, 1);
  EXPECT_THAT(problem("--model " + Published() + " --adapter " + (dir_ / "job")), HasSubstr("step-00000010 is bad"));
  EXPECT_EQ(code_, 1);
}

// CLI11's conversions take many of these as the largest number, or as none.
TEST_F(GenerateCommand, NumbersAreTakenAsTheyAreOrRefusedByName) {
  const auto seed = [&](const std::string& text) {
    return Asked("--model " + Published() + " --prompt x --seed " + text)->seed;
  };
  EXPECT_EQ(seed("18446744073709551615"), 0xffffffffffffffff);
  EXPECT_EQ(seed("010"), 10U);
  EXPECT_EQ(Asked("--model " + Published() + " --prompt x --temperature 1e6 --top-p 1e-9")->top_p, 1e-9);
  for (const auto& [flag, values] : std::map<std::string, std::vector<std::string>>{
           {"--seed", {"-1", "18446744073709551616", "99999999999999999999999", "1.5", "x", "nan", "0x"}},
           {"--temperature", {"nan", "-nan", "inf", "1e400", "-0.1", "1x"}},
           {"--top-p", {"nan", "inf", "0", "1.01"}},
           {"--tokens", {"1e30", "99999999999999999999999", "0", "-1", "nan"}},
           {"--top-k", {"-1", "1e30", "18446744073709551616"}},
           {"--threads", {"-1", "4294967297", "18446744073709551617"}},
           {"--step", {"-1", "9223372036854775808", "99999999999999999999"}}}) {
    for (const std::string& value : values) {
      try {
        Asked("--model " + Published() + " --prompt x " + flag + " " + value);
        ADD_FAILURE() << flag << " " << value;
      } catch (const CLI::ParseError& error) {
        EXPECT_THAT(error.what(), StartsWith(flag + ": " + value + " is not a ")) << error.what();
      }
    }
  }
}

TEST_F(GenerateCommand, TextThatIsNotUtf8IsRefusedByName) {
  for (const char* flag :
       {"--prompt", "--system", "--template", "--tokenizer", "--adapter", "--model", "--checkpoint"}) {
    const bool prompt = flag == std::string("--prompt");
    EXPECT_FALSE(Asked(std::string(prompt ? "" : "--prompt x ") + "--chat " + flag + " ab\xff\xfe"));
    EXPECT_EQ(error_, std::string("trainyard: ") + flag + ": byte 2 is not UTF-8\n");
    EXPECT_EQ(code_, 2);
  }
  EXPECT_FALSE(Asked("--model " + Published() + " --prompt -", std::string("a\0\xc3", 3)));
  EXPECT_EQ(error_, "trainyard: standard input: byte 2 is not UTF-8\n");
  EXPECT_EQ(code_, 2);
}

TEST_F(GenerateCommand, RefusesWhatDoesNotGoTogether) {
  const auto problem = [&](const std::string& arguments) {
    EXPECT_FALSE(Asked("--model " + Published() + " --prompt x " + arguments)) << arguments;
    return error_;
  };
  EXPECT_THAT(problem("--template qwen3"), HasSubstr("--template is for --chat"));
  EXPECT_THAT(problem("--system brief"), HasSubstr("--system is for --chat"));
  EXPECT_THAT(problem("--top-k 3"), HasSubstr("needs --temperature above 0"));
  EXPECT_THAT(problem("--top-p 0.5"), HasSubstr("needs --temperature above 0"));
  for (const char* arguments :
       {"--tokens 0", "--temperature -1", "--top-p 0", "--top-p 1.5", "--precision FP8", "--threads 0", "-o yaml"}) {
    EXPECT_THROW(Asked("--model " + Published() + " --prompt x " + arguments), CLI::ParseError) << arguments;
  }
  EXPECT_THROW(Asked("--model " + Published()), CLI::ParseError);
}

}  // namespace
}  // namespace trainyard::cli
