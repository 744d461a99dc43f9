#include "operator/api/yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard::api {
namespace {

using nlohmann::json;

json One(std::string_view text) {
  auto documents = LoadYaml(text, "t.yaml");
  EXPECT_TRUE(documents.has_value()) << documents.error().message;
  if (!documents.has_value() || documents->size() != 1) return "not one document";
  return documents->front();
}

TEST(Yaml, ReadsScalarsByTheCoreSchema) {
  EXPECT_EQ(One("a: yes"), json({{"a", "yes"}}));
  EXPECT_EQ(One("a: [no, On, off, y, N]"), json({{"a", {"no", "On", "off", "y", "N"}}}));
  EXPECT_EQ(One("a: [true, False]"), json({{"a", {true, false}}}));
  EXPECT_EQ(One("a: '4'"), json({{"a", "4"}}));
  EXPECT_EQ(One("a: \"true\""), json({{"a", "true"}}));
  EXPECT_EQ(One("a: 4"), json({{"a", 4}}));
  EXPECT_EQ(One("a: +4"), json({{"a", 4}}));
  EXPECT_EQ(One("a: -4"), json({{"a", -4}}));
  EXPECT_EQ(One("a: 9223372036854775807"), json({{"a", 9223372036854775807}}));
  EXPECT_EQ(One("a: 0.5"), json({{"a", 0.5}}));
  EXPECT_EQ(One("a: .5"), json({{"a", 0.5}}));
  EXPECT_EQ(One("a: 1e-8"), json({{"a", 1e-8}}));
  EXPECT_EQ(One("a: [~, null, ]"), json({{"a", {nullptr, nullptr}}}));
  EXPECT_EQ(One("a: 12:30:00"), json({{"a", "12:30:00"}}));
  EXPECT_EQ(One("a: 1_000"), json({{"a", "1_000"}}));
  EXPECT_EQ(One("a: 1.2.3"), json({{"a", "1.2.3"}}));
  EXPECT_EQ(One("a: 7B"), json({{"a", "7B"}}));
  EXPECT_EQ(One("a: |\n  1\n  2\n"), json({{"a", "1\n2\n"}}));
  EXPECT_EQ(One("a: !!str 4"), json({{"a", "4"}}));
}

TEST(Yaml, ReadsJsonAsWell) {
  EXPECT_EQ(One(R"({"a": [1, "x\n", {"b": null}]})"), json::parse(R"({"a":[1,"x\n",{"b":null}]})"));
}

TEST(Yaml, ReadsSeveralDocumentsAndSkipsEmptyOnes) {
  auto documents = LoadYaml("---\na: 1\n---\n---\n# nothing\n---\nb: 2\n", "t.yaml");
  ASSERT_TRUE(documents.has_value());
  EXPECT_EQ(*documents, (std::vector<json>{{{"a", 1}}, {{"b", 2}}}));
  EXPECT_TRUE(LoadYaml("", "t.yaml")->empty());
}

TEST(Yaml, UnfoldsAliases) { EXPECT_EQ(One("a: &x [1]\nb: *x"), json::parse(R"({"a":[1],"b":[1]})")); }

TEST(Yaml, NamesLineAndColumnOfWhatItRefuses) {
  struct Case {
    const char* text;
    const char* message;
  };
  const Case cases[] = {
      {"a: 1\na: 2", "t.yaml:2:1: key 'a' occurs twice"},
      {"a: 010", "t.yaml:1:4: '010' has a leading zero, which readers of YAML disagree on; drop it or use quotes"},
      {"a: 0x1F", "t.yaml:1:4: '0x1F' is not decimal"},
      {"a: .inf", "t.yaml:1:4: '.inf' is not a finite number"},
      {"a: 99999999999999999999", "t.yaml:1:4: number 99999999999999999999 does not fit into 64 bits"},
      {"a: 1e999", "t.yaml:1:4: number 1e999 does not fit into a double"},
      {"a: {<<: {b: 1}}", "t.yaml:1:5: merge keys ('<<') are not supported; write the fields out"},
      {"? [a]\n: 1", "t.yaml:1:3: a key must be a plain or quoted string"},
      {"a: [1", "t.yaml:1:"},
      {"a: *nowhere", "t.yaml:1:4: not YAML: "},
      {"a:\n\t- 1", "t.yaml:2:2: not YAML: "},
      {"a: !mine 4", "t.yaml:1:4: tag '!mine' is not supported"},
      {"a: \xff", "t.yaml: is not UTF-8 text"},
  };
  for (const Case& c : cases) {
    auto documents = LoadYaml(c.text, "t.yaml");
    ASSERT_FALSE(documents.has_value()) << c.text;
    EXPECT_EQ(documents.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(documents.error().message, testing::StartsWith(c.message)) << c.text;
  }
}

TEST(Yaml, RefusesAliasesThatUnfoldWithoutEndAndDeepNesting) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    std::string previous = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int k = 0; k < 10; ++k) bomb += previous + ", ";
    bomb += "]\n";
  }
  EXPECT_THAT(LoadYaml(bomb, "t.yaml").error().message, testing::HasSubstr("more than 100000 values"));
  EXPECT_FALSE(LoadYaml(std::string(200, '[') + std::string(200, ']'), "t.yaml").has_value());
  EXPECT_FALSE(LoadYaml(std::string(100'000, '['), "t.yaml").has_value());
}

// yaml-cpp alone would read empty documents from these until the memory is full.
TEST(Yaml, ComesToAnEnd) {
  for (const char* text : {",a: 1", ",", "a: 1\n--- \n, b", "]", "}", "a: 1\n...\n]\n"}) {
    const auto loaded = LoadYaml(text, "t.yaml");
    ASSERT_FALSE(loaded.has_value()) << text;
    EXPECT_THAT(loaded.error().message, testing::HasSubstr("t.yaml:")) << text;
  }
  EXPECT_THAT(LoadYaml(",a: 1", "t.yaml").error().message,
              testing::HasSubstr("t.yaml:1:1: unexpected character: nothing can begin here"));
  EXPECT_EQ(LoadYaml("---\n---\n---\na: 1\n---\n", "t.yaml").value().size(), 1u);
}

TEST(Yaml, WritesWhatItReadsBack) {
  json value = json::parse(R"({
    "plain": "two words", "yes": "yes", "no": "No", "number": "4", "float": "1e3", "empty": "", "null": "null", "tilde": "~",
    "time": "12:30", "colon": "a: b", "hash": "a #b", "dash": "- a", "lines": "a\nb", "quote": "it's \"so\"", "umlaut": "ä",
    "int": 9223372036854775807, "small": 1e-8, "big": 1e20, "half": 0.5, "true": true, "none": null, "list": [1, "2", [3, [4]], {"a": 1, "b": [2]}],
    "map": {"x": {"y": {}}, "z": []}, "lead": "010", "space": " x", "012": 1})");
  value[std::string(2000, 'k')] = json::parse(R"({"a": [1]})");
  std::string text = ToYaml(value);
  EXPECT_EQ(One(text), value) << text;
  EXPECT_THAT(text, testing::HasSubstr("\"yes\": \"yes\"\n"));
  EXPECT_THAT(text, testing::HasSubstr("small: 1.0e-08\n"));
  EXPECT_THAT(text, testing::HasSubstr("plain: two words\n"));
  EXPECT_EQ(ToYaml(json::array()), "[]\n");
  EXPECT_EQ(ToYaml("x"), "x\n");
}

}  // namespace
}  // namespace trainyard::api
