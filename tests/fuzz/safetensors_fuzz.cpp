// Any bytes as a safetensors file of somebody else.
#include <string>
#include <string_view>

#include "tests/fuzz/fuzz_target.h"
#include "trainer/checkpoint/format.h"
#include "trainer/checkpoint/safetensors_file.h"

using trainyard::fuzz::Require;
using trainyard::fuzz::RequireOneLine;
using trainyard::fuzz::RequireUtf8;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto bytes = static_cast<int64_t>(size);
  const auto header = trainyard::checkpoint::ParseSafetensorsHeader(text, bytes);
  if (!header) {
    RequireOneLine(header.error().message);
    RequireUtf8(header.error().message);
    return 0;
  }
  int64_t at = header->data_begin;
  Require(at >= 8 && at <= bytes, "the header lies in the file");
  for (const auto& entry : header->entries) {
    RequireOneLine(entry.name);
    const auto element = trainyard::checkpoint::DtypeBytes(entry.dtype);
    Require(element.has_value(), "a dtype is known");
    Require(entry.begin == at && entry.end - entry.begin == entry.box.elements() * *element, "bytes are the tensor's");
    Require(entry.box.offset.size() == entry.box.shape.size(), "a box has as many offsets as dimensions");
    at = entry.end;
  }
  Require(at == bytes, "no byte is of no tensor");
  return 0;
}
