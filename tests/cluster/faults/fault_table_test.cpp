// docs/operations.md has tables of every injected fault, and of what a node may do to its gang, and what the operator
// does. Each row names the test that shows it, and each such test has its row.
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

namespace trainyard::faults {
namespace {

std::string Read(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::multiset<std::string> AllMatches(const std::string& text, const std::string& pattern, const std::string& format) {
  std::multiset<std::string> found;
  const std::regex regex(pattern);
  for (auto it = std::sregex_iterator(text.begin(), text.end(), regex); it != std::sregex_iterator(); ++it) {
    found.insert(it->format(format));
  }
  return found;
}

TEST(FaultTable, HasARowForEachTestAndATestForEachRow) {
  const std::filesystem::path root = TRAINYARD_SOURCE_DIR;
  std::multiset<std::string> tests;
  for (const char* directory : {"tests/cluster/faults", "tests/cluster/gangs"}) {
    for (const auto& entry : std::filesystem::directory_iterator(root / directory)) {
      if (entry.path().extension() != ".cpp") continue;
      tests.merge(AllMatches(Read(entry.path()), R"(\nTEST_F\((Fault\w+|NodeEvents), (\w+)\))", "$1.$2"));
    }
  }
  ASSERT_GT(tests.size(), 30u);
  const auto rows =
      AllMatches(Read(root / "docs/operations.md"), R"(\n\|[^\n]*\| `((?:Fault\w+|NodeEvents)\.\w+)` \|)", "$1");
  for (const std::string& test : tests)
    EXPECT_EQ(rows.count(test), 1u) << test << " needs one row in docs/operations.md";
  for (const std::string& row : rows) EXPECT_EQ(tests.count(row), 1u) << row << " is in docs/operations.md only";
}

}  // namespace
}  // namespace trainyard::faults
