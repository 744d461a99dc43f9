// Every manifest in docs/examples reads, validates, and holds no YAML that other readers take for something else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "operator/api/defaults.h"
#include "operator/api/json.h"
#include "operator/api/validation.h"
#include "operator/api/yaml.h"
#include "operator/base/files.h"

namespace trainyard::api {
namespace {

TEST(Examples, AreValid) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TRAINYARD_SOURCE_DIR "/docs/examples")) {
    if (entry.path().extension() != ".yaml") continue;
    ++count;
    const std::string path = entry.path().string();
    auto documents = LoadYaml(ReadFile(path).value(), path);
    ASSERT_TRUE(documents.has_value()) << documents.error().message;
    ASSERT_FALSE(documents->empty()) << path;
    for (const nlohmann::json& document : *documents) {
      std::vector<std::string> errors;
      TrainingJob job = ReadJob(document, errors);
      EXPECT_THAT(errors, testing::IsEmpty()) << path;
      ApplyDefaults(job);
      EXPECT_THAT(Validate(job), testing::IsEmpty()) << path;
    }
  }
  EXPECT_GE(count, 4);
}

}  // namespace
}  // namespace trainyard::api
