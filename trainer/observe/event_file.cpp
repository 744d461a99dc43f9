#include "trainer/observe/event_file.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "operator/base/files.h"

namespace trainyard::observe {
namespace {

static_assert(std::endian::native == std::endian::little, "the formats are little endian");

constexpr std::array<uint32_t, 256> CrcTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
    table[i] = crc;
  }
  return table;
}

template <typename T>
void PutRaw(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

// A checksum of data that may itself hold checksums is masked: record_writer.h.
void PutMaskedCrc(std::string& out, std::string_view data) {
  PutRaw<uint32_t>(out, std::rotr(Crc32c(data), 15) + 0xa282ead8u);
}

void PutVarint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

enum WireType : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void PutTag(std::string& out, uint64_t field, WireType type) { PutVarint(out, field << 3 | type); }

void PutBytes(std::string& out, uint64_t field, std::string_view bytes) {
  PutTag(out, field, kBytes);
  PutVarint(out, bytes.size());
  out += bytes;
}

std::string EventHead(double wall_time) {
  std::string event;
  PutTag(event, 1, kFixed64);
  PutRaw(event, wall_time);
  return event;
}

void PutNumber(std::string& out, uint64_t field, uint64_t value) {
  PutTag(out, field, kVarint);
  PutVarint(out, value);
}

std::string SummaryEvent(double wall_time, int64_t step, const std::string& summary) {
  std::string event = EventHead(wall_time);
  PutNumber(event, 2, static_cast<uint64_t>(step));
  PutBytes(event, 5, summary);
  return event;
}

}  // namespace

uint32_t Crc32c(std::string_view data) {
  static constexpr auto kTable = CrcTable();
  uint32_t crc = ~0u;
  for (const char c : data) crc = kTable[(crc ^ static_cast<uint8_t>(c)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

std::string FrameRecord(std::string_view data) {
  std::string record;
  PutRaw<uint64_t>(record, data.size());
  PutMaskedCrc(record, std::string(record));
  record += data;
  PutMaskedCrc(record, data);
  return record;
}

std::string EncodeEvent(double wall_time, int64_t step, const std::vector<Scalar>& scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    if (!std::isfinite(scalar.value)) continue;
    std::string value;
    PutBytes(value, 1, scalar.tag);
    PutTag(value, 2, kFixed32);
    PutRaw(value, static_cast<float>(scalar.value));
    PutBytes(summary, 1, value);
  }
  return SummaryEvent(wall_time, step, summary);
}

std::string EncodeTextEvent(double wall_time, int64_t step, std::string_view tag, std::string_view text) {
  constexpr uint64_t kString = 7;  // of tensorflow.DataType
  std::string dimension, shape, tensor, plugin, metadata, value, summary;
  PutNumber(dimension, 1, 1);
  PutBytes(shape, 2, dimension);
  PutNumber(tensor, 1, kString);
  PutBytes(tensor, 2, shape);
  PutBytes(tensor, 8, text);
  PutBytes(plugin, 1, "text");
  PutBytes(metadata, 1, plugin);
  PutBytes(value, 1, tag);
  PutBytes(value, 8, tensor);
  PutBytes(value, 9, metadata);
  PutBytes(summary, 1, value);
  return SummaryEvent(wall_time, step, summary);
}

Result<EventFile> EventFile::Open(const std::string& directory, double wall_time, const std::string& suffix) {
  if (Status made = MakeDirectories(directory); !made) return Fail(made.error());
  char seconds[24];
  std::snprintf(seconds, sizeof seconds, "%010lld", static_cast<long long>(wall_time));
  const std::string path = directory + "/events.out.tfevents." + seconds + "." + suffix;
  auto opened = AppendFile::Open(path, "event file");
  if (!opened) return Fail(opened.error());
  EventFile file(std::move(*opened));
  std::string version = EventHead(wall_time);
  PutBytes(version, 3, "brain.Event:2");
  if (Status written = file.Write(version); !written) return Fail(written.error());
  return file;
}

Status EventFile::Append(double wall_time, int64_t step, const std::vector<Scalar>& scalars) {
  return Write(EncodeEvent(wall_time, step, scalars));
}

Status EventFile::AppendText(double wall_time, int64_t step, std::string_view tag, std::string_view text) {
  return Write(EncodeTextEvent(wall_time, step, tag, text));
}

Status EventFile::AppendStart(double wall_time, int64_t step) {
  std::string session;
  PutNumber(session, 1, 1);
  std::string event = EventHead(wall_time);
  PutNumber(event, 2, static_cast<uint64_t>(step));
  PutBytes(event, 7, session);
  return Write(event);
}

}  // namespace trainyard::observe
