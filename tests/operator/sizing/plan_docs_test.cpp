// Every output of `trainyard plan` that the documentation shows is what the command prints: a block that opens with
// "$ trainyard plan ..." holds exactly its output. UPDATE_GOLDEN=1 writes the blocks anew.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "operator/cli/plan/plan_command.h"

namespace trainyard::cli {
namespace {

const char* const kPrompt = "$ trainyard plan ";

std::string OutputOf(const std::string& arguments) {
  int exit_code = -1;
  std::ostringstream out, err;
  CLI::App app("trainyard");
  AddPlanCommand(app, exit_code, out, err);
  try {
    app.parse("plan " + arguments);
  } catch (const CLI::ParseError& error) {
    ADD_FAILURE() << arguments << ": " << error.what();
  }
  return exit_code == 0 ? out.str() : err.str();  // an error that is shown is what the command says, too
}

std::string ReadText(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// The same text with every block of a plan command made anew; the commands are appended to `commands`.
std::string Regenerated(const std::string& text, std::vector<std::string>& commands) {
  std::istringstream in(text);
  std::string out, line;
  bool inside = false;    // of any fenced block
  bool skipping = false;  // the old output of a command
  while (std::getline(in, line)) {
    if (line.rfind("```", 0) == 0) {
      inside = !inside;
      skipping = false;
    }
    if (skipping) continue;
    out += line + "\n";
    if (inside && line.rfind(kPrompt, 0) == 0) {
      commands.push_back(line.substr(std::string(kPrompt).size()));
      out += OutputOf(commands.back());
      skipping = true;
    }
  }
  return out;
}

class PlanDocs : public testing::TestWithParam<const char*> {};

TEST_P(PlanDocs, ShowsWhatTheCommandPrints) {
  const std::filesystem::path root = TRAINYARD_SOURCE_DIR;
  std::filesystem::current_path(root);  // the commands name files of the repository
  const std::filesystem::path path = root / GetParam();
  const std::string text = ReadText(path);
  ASSERT_FALSE(text.empty()) << path;
  std::vector<std::string> commands;
  const std::string anew = Regenerated(text, commands);
  EXPECT_FALSE(commands.empty()) << path << " shows no plan";
  const char* update = std::getenv("UPDATE_GOLDEN");
  if (update != nullptr && std::string(update) == "1") {
    std::ofstream(path) << anew;
    return;
  }
  EXPECT_EQ(text, anew) << GetParam() << " shows another output; if the new one is meant, run with UPDATE_GOLDEN=1";
}

INSTANTIATE_TEST_SUITE_P(Documents, PlanDocs,
                         testing::Values("docs/sizing.md", "docs/models.md", "docs/examples/plan.md"));

// The commands that people were promised to find there.
TEST(PlanExamples, AreAllThere) {
  std::filesystem::current_path(TRAINYARD_SOURCE_DIR);
  std::vector<std::string> commands;
  Regenerated(ReadText("docs/examples/plan.md"), commands);
  for (const char* command :
       {"--model 8B --product H100-SXM", "--model 34B --product H100-SXM", "--model 70B --product H200-SXM",
        "--model 1B --product RTX-4090", "--model 70B --product H200-SXM -o json",
        "--model 13B --product A100-80GB-SXM", "--model 7B --adapter QLoRA --product RTX-4090",
        "--model 7B --product RTX-4090 --offload CPU", "--config docs/examples/llama-135m --product L4",
        "--model 34B --product RTX-4090 --count 1-8"}) {
    EXPECT_THAT(commands, testing::Contains(command));
  }
}

// The sums of errors that the tests against public measurements are held to stand in the documentation as well.
TEST(PlanErrors, AreDocumentedAsTheyAreHeld) {
  const std::filesystem::path root = TRAINYARD_SOURCE_DIR;
  const std::string docs = ReadText(root / "docs/sizing.md");
  const std::pair<const char*, const char*> held[] = {{"published_memory_test.cpp", "kSumOfErrors = "},
                                                      {"published_scaling_test.cpp", "kCommittedFitted = "},
                                                      {"published_scaling_test.cpp", "kCommittedHeldOut = "}};
  for (const auto& [file, name] : held) {
    const std::string source = ReadText(root / "tests/operator/sizing" / file);
    const size_t at = source.find(name);
    ASSERT_NE(at, std::string::npos) << name << " in " << file;
    const size_t from = at + std::string(name).size();
    const std::string figure = source.substr(from, source.find(';', from) - from);
    EXPECT_NE(docs.find(" " + figure + " "), std::string::npos) << "docs/sizing.md should say " << figure;
  }
}

}  // namespace
}  // namespace trainyard::cli
