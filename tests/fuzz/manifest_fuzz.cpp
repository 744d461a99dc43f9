// Any text as manifest.json of a checkpoint: as it is, and with a digest that fits, so that the rules behind the digest
// are met as well.
#include <string>

#include <nlohmann/json.hpp>

#include "tests/fuzz/fuzz_target.h"
#include "trainer/checkpoint/manifest.h"

namespace checkpoint = trainyard::checkpoint;
using trainyard::fuzz::Require;
using trainyard::fuzz::RequireOneLine;

namespace {

void Check(const std::string& text) {
  const auto manifest = checkpoint::DecodeManifest(text);
  if (!manifest) {
    RequireOneLine(manifest.error().message);
    return;
  }
  for (const auto& file : manifest->files) {
    Require(file.path == checkpoint::ShardPath(checkpoint::kModelGroup, file.rank) ||
                file.path == checkpoint::ShardPath(checkpoint::kOptimGroup, file.rank),
            "a file lies in the checkpoint: " + file.path);
    int64_t at = file.data_begin;
    for (const auto& chunk : file.chunks) {
      Require(chunk.begin == at && chunk.end > chunk.begin, "chunks lie end to end");
      Require(chunk.tensor >= 0 && chunk.tensor < static_cast<int64_t>(manifest->tensors.size()), "of known tensors");
      at = chunk.end;
    }
    Require(at == file.bytes, "and fill the file");
  }
  Require(manifest->bytes() >= 0, "its size can be told");
  for (const auto& untiled : checkpoint::FindUntiled(*manifest))
    Require(!untiled.reason.empty(), "a hole has a reason");
  const std::string again = checkpoint::EncodeManifest(*manifest);
  const auto same = checkpoint::DecodeManifest(again);
  Require(same && checkpoint::EncodeManifest(*same) == again, "what is written can be read");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  Check(text);
  if (const auto raw = checkpoint::DecodeManifest(text); !raw && raw.error().message.starts_with("it is nested")) {
    return 0;
  }
  nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return 0;
  json.erase("digest");
  const auto replace = nlohmann::json::error_handler_t::replace;
  json["digest"] = checkpoint::HexDigest(checkpoint::Digest(json.dump(-1, ' ', false, replace)));
  Check(json.dump(-1, ' ', false, replace));
  return 0;
}
