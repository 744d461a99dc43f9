// Random input, deterministic by its seed: no reader crashes, and what is read can be written and read again.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "operator/api/defaults.h"
#include "operator/api/json.h"
#include "operator/api/validation.h"
#include "operator/api/yaml.h"
#include "tests/operator/api/sample_jobs.h"

namespace trainyard::api {
namespace {

using nlohmann::json;

unsigned Seed() {
  const char* given = std::getenv("TRAINYARD_TEST_SEED");
  unsigned seed = given != nullptr ? static_cast<unsigned>(std::atoi(given)) : 20260131;
  std::printf("seed %u (set TRAINYARD_TEST_SEED to change it)\n", seed);
  return seed;
}

json RandomValue(std::mt19937& rng, int depth = 0) {
  switch (rng() % (depth > 2 ? 7 : 9)) {
    case 0:
      return nullptr;
    case 1:
      return rng() % 2 == 0;
    case 2:
      return static_cast<int64_t>((uint64_t{rng()} << 32) | rng());
    case 3:
      return static_cast<int64_t>(rng() % 9) - 4;
    case 4:
      return std::ldexp(static_cast<double>(rng()), static_cast<int>(rng() % 400) - 200);
    case 5:
      return std::vector<std::string>{"Auto", "", "7B", "a/../b", "\x01\n", "-1", std::string(300, 'x')}[rng() % 7];
    case 6:
      return (uint64_t{1} << 63) + rng();
    case 7: {
      json list = json::array();
      for (size_t i = rng() % 4; i > 0; --i) list.push_back(RandomValue(rng, depth + 1));
      return list;
    }
    default: {
      json object = json::object();
      for (size_t i = rng() % 4; i > 0; --i) object["k" + std::to_string(rng() % 5)] = RandomValue(rng, depth + 1);
      return object;
    }
  }
}

// Replaces, adds or removes a member somewhere below `value`.
void Mutate(json& value, std::mt19937& rng) {
  if (!value.is_structured() || value.empty() || rng() % 6 == 0) {
    value = RandomValue(rng);
    return;
  }
  auto member = value.begin();
  std::advance(member, rng() % value.size());
  if (rng() % 12 == 0) {
    value.erase(member);
  } else {
    Mutate(*member, rng);
  }
}

TEST(RandomInput, NeverCrashesTheJsonReader) {
  std::mt19937 rng(Seed());
  json full = JobToJson(FullJob());
  json small = MinimalTrainerManifest();
  int readable = 0;
  for (int i = 0; i < 4'000; ++i) {
    json mutant = i % 2 == 0 ? full : small;
    for (size_t k = rng() % 3 + 1; k > 0; --k) Mutate(mutant, rng);
    auto job = JobFromJson(mutant);
    if (!job) {
      ASSERT_FALSE(job.error().message.empty());
      ASSERT_EQ(job.error().message.find('\n'), std::string::npos) << job.error().message;
      continue;
    }
    ++readable;
    ApplyDefaults(*job);
    for (const std::string& error : Validate(*job)) ASSERT_EQ(error.find('\n'), std::string::npos) << error;
    ValidateUpdate(*job, FullJob());
    json written = JobToJson(*job);
    auto again = JobFromJson(json::parse(written.dump()));
    ASSERT_TRUE(again.has_value()) << again.error().message << "\n" << written.dump();
    ASSERT_EQ(JobToJson(*again), written);
  }
  EXPECT_GT(readable, 100);  // the mutations must not be so wild that nothing gets past the reader
}

TEST(RandomInput, NeverCrashesTheYamlReader) {
  std::mt19937 rng(Seed());
  const std::string source = ToYaml(JobToJson(FullJob()));
  const std::string alphabet = "-:[]{}&*!|>'\"%@`#,? \n\tax0.1e~<\\\xc3\xa4\xff";
  int readable = 0;
  for (int i = 0; i < 600; ++i) {
    std::string text = source;
    for (size_t k = rng() % 4 + 1; k > 0; --k) {
      size_t at = rng() % text.size();
      switch (rng() % 3) {
        case 0:
          text[at] = alphabet[rng() % alphabet.size()];
          break;
        case 1:
          text.insert(at, 1, alphabet[rng() % alphabet.size()]);
          break;
        default:
          text.erase(at, rng() % 20 + 1);
      }
      if (text.empty()) text = "x";
    }
    auto documents = LoadYaml(text, "random.yaml");
    if (!documents) {
      ASSERT_TRUE(documents.error().message.starts_with("random.yaml:")) << documents.error().message;
      continue;
    }
    ++readable;
    for (const json& document : *documents) {
      auto again = LoadYaml(ToYaml(document), "again.yaml");
      ASSERT_TRUE(again.has_value()) << again.error().message << "\n" << ToYaml(document);
      ASSERT_EQ(again->front(), document);
    }
  }
  EXPECT_GT(readable, 60);
}

}  // namespace
}  // namespace trainyard::api
