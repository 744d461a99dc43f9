// Reads the event files back with a reader that knows the formats only from their definition.
#include "trainer/observe/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>

namespace trainyard::observe {
namespace {

template <typename T>
T Take(std::string_view& bytes) {
  T value{};
  if (bytes.size() < sizeof value) {
    ADD_FAILURE() << "cut off";
    return value;
  }
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.remove_prefix(sizeof value);
  return value;
}

uint32_t Masked(std::string_view data) {
  const uint32_t crc = Crc32c(data);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

std::vector<std::string> Records(std::string_view file) {
  std::vector<std::string> records;
  while (!file.empty()) {
    const std::string_view length_bytes = file.substr(0, 8);
    const auto length = Take<uint64_t>(file);
    EXPECT_EQ(Take<uint32_t>(file), Masked(length_bytes));
    if (length > file.size()) {
      ADD_FAILURE() << "cut off";
      break;
    }
    records.emplace_back(file.substr(0, length));
    file.remove_prefix(length);
    EXPECT_EQ(Take<uint32_t>(file), Masked(records.back()));
  }
  return records;
}

uint64_t Varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0; !bytes.empty(); shift += 7) {
    const auto byte = Take<uint8_t>(bytes);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) break;
  }
  return value;
}

// Field number -> contents: 8 or 4 raw bytes, a varint as 8 bytes, or the bytes themselves.
std::multimap<uint64_t, std::string> Fields(std::string_view message) {
  std::multimap<uint64_t, std::string> fields;
  while (!message.empty()) {
    const uint64_t tag = Varint(message);
    std::string contents;
    if ((tag & 7) == 0) {
      const uint64_t value = Varint(message);
      contents.assign(reinterpret_cast<const char*>(&value), sizeof value);
    } else {
      const size_t size = (tag & 7) == 1 ? 8 : (tag & 7) == 5 ? 4 : Varint(message);
      contents = message.substr(0, size);
      message.remove_prefix(std::min(size, message.size()));
    }
    fields.emplace(tag >> 3, contents);
  }
  return fields;
}

template <typename T>
T Value(const std::multimap<uint64_t, std::string>& fields, uint64_t field) {
  std::string_view bytes = fields.find(field)->second;
  return Take<T>(bytes);
}

std::map<std::string, float> Scalars(const std::string& event) {
  std::map<std::string, float> scalars;
  const auto summary = Fields(Fields(event).find(5)->second);
  for (const auto& [field, value] : summary) {
    EXPECT_EQ(field, 1U);
    const auto parts = Fields(value);
    scalars[parts.find(1)->second] = Value<float>(parts, 2);
  }
  return scalars;
}

TEST(Crc32c, KnowsTheCheckValueAndTheVectorsOfItsStandard) {
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);  // RFC 3720, B.4
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

TEST(EventFile, HoldsWhatWasAppended) {
  std::string name = std::filesystem::temp_directory_path() / "trainyard-events-XXXXXX";
  const std::filesystem::path dir = mkdtemp(name.data());
  {
    auto file = EventFile::Open(dir / "runs/a", 1700000000.5, "trainyard.2.0");
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->path(), dir / "runs/a/events.out.tfevents.1700000000.trainyard.2.0");
    ASSERT_TRUE(file->AppendStart(1700000001, 200));
    ASSERT_TRUE(file->Append(1700000002.25, 300, {{"train/loss", 2.5}, {"train/learning_rate", 3e-4}}));
    ASSERT_TRUE(file->Append(1700000003, int64_t{1} << 40,
                             {{"train/loss", std::numeric_limits<double>::quiet_NaN()}, {"train/gradient_norm", 0.5}}));
  }
  std::ostringstream text;
  text << std::ifstream(dir / "runs/a/events.out.tfevents.1700000000.trainyard.2.0", std::ios::binary).rdbuf();
  const auto records = Records(text.str());
  ASSERT_EQ(records.size(), 4U);
  EXPECT_EQ(Value<double>(Fields(records[0]), 1), 1700000000.5);
  EXPECT_EQ(Fields(records[0]).find(3)->second, "brain.Event:2");
  EXPECT_EQ(Value<uint64_t>(Fields(records[1]), 2), 200U);
  EXPECT_EQ(Value<uint64_t>(Fields(Fields(records[1]).find(7)->second), 1), 1U);
  EXPECT_EQ(Value<double>(Fields(records[2]), 1), 1700000002.25);
  EXPECT_EQ(Value<uint64_t>(Fields(records[2]), 2), 300U);
  EXPECT_EQ(Scalars(records[2]), (std::map<std::string, float>{{"train/loss", 2.5f}, {"train/learning_rate", 3e-4f}}));
  EXPECT_EQ(Value<uint64_t>(Fields(records[3]), 2), uint64_t{1} << 40);
  EXPECT_EQ(Scalars(records[3]), (std::map<std::string, float>{{"train/gradient_norm", 0.5f}}));
  std::filesystem::remove_all(dir);
}

// Fields and numbers of summary.proto and tensor.proto.
TEST(EventFile, TextsAreTensorsOfTheTextPlugin) {
  const std::string event = EncodeTextEvent(5.5, 7, "sample/text_summary", "a\nb");
  EXPECT_EQ(Value<double>(Fields(event), 1), 5.5);
  EXPECT_EQ(Value<uint64_t>(Fields(event), 2), 7U);
  const auto value = Fields(Fields(Fields(event).find(5)->second).find(1)->second);
  EXPECT_EQ(value.find(1)->second, "sample/text_summary");
  const auto tensor = Fields(value.find(8)->second);
  EXPECT_EQ(Value<uint64_t>(tensor, 1), 7U);
  EXPECT_EQ(Value<uint64_t>(Fields(Fields(tensor.find(2)->second).find(2)->second), 1), 1U);
  EXPECT_EQ(tensor.find(8)->second, "a\nb");
  EXPECT_EQ(Fields(Fields(value.find(9)->second).find(1)->second).find(1)->second, "text");
}

TEST(EventFile, NamesWhatItCannotWrite) {
  auto nowhere = EventFile::Open("/proc/nowhere", 0, "x");
  ASSERT_FALSE(nowhere);
  EXPECT_THAT(nowhere.error().message, ::testing::HasSubstr("/proc/nowhere"));
}

}  // namespace
}  // namespace trainyard::observe
