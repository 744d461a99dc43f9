#include "trainer/checkpoint/source_files.h"

#include <algorithm>
#include <cstring>

#include <nlohmann/json.hpp>

#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/foreign_tensors.h"

namespace trainyard::checkpoint {
namespace {

constexpr int64_t kMostBytes = 256 << 20;  // of one file; tokenizers have up to some 30 MB
constexpr std::string_view kHeaderSuffix = ".header";
constexpr std::string_view kConfig = "config.json";
constexpr std::string_view kIndex = "model.safetensors.index.json";

// What transformers reads besides the weights.
constexpr std::string_view kCarried[] = {"generation_config.json",
                                         "tokenizer.json",
                                         "tokenizer_config.json",
                                         "tokenizer.model",
                                         "special_tokens_map.json",
                                         "added_tokens.json",
                                         "vocab.json",
                                         "vocab.txt",
                                         "merges.txt",
                                         "chat_template.jinja",
                                         "chat_template.json"};

std::string BaseOf(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// Copies a file where there is one.
Status CopyIfThere(const std::string& from, const std::string& to, FileSystem& fs) {
  const Result<std::string> text = ReadFollowed(fs, from, kMostBytes);
  if (!text && text.error().code == ErrorCode::kNotFound) return {};
  if (!text) return Fail(text.error());
  return WriteWholeFile(fs, to, *text);
}

// Size of the file that such a header was of.
int64_t FileBytes(const std::string& header) {
  int64_t data = 0;
  const nlohmann::json json =
      nlohmann::json::parse(header.substr(std::min<size_t>(8, header.size())), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return 0;
  for (const auto& [name, entry] : json.items()) {
    if (!entry.is_object() || !entry.contains("data_offsets")) continue;
    const nlohmann::json& range = entry["data_offsets"];
    if (range.is_array() && range.size() == 2 && range[1].is_number_integer()) {
      data = std::max(data, range[1].get<int64_t>());
    }
  }
  return static_cast<int64_t>(header.size()) + data;
}

Status KeepHeaders(const ForeignModel& model, const std::string& to, FileSystem& fs) {
  if (!model.names().plain()) return {};
  for (const std::string& path : model.tensors().files()) {
    const Result<SafetensorsHeader> header = ReadSafetensorsHeader(path, fs);
    if (!header) return Fail(header.error());
    if (header->sharded) return {};
  }
  for (const std::string& path : model.tensors().files()) {
    const Result<std::string> bytes = ReadHeaderBytes(path, fs);
    if (!bytes) return Fail(bytes.error());
    if (Status s = WriteWholeFile(fs, to + "/" + BaseOf(path) + std::string(kHeaderSuffix), *bytes); !s) return s;
  }
  return {};
}

// `fill` makes what is in the directory.
template <typename Fill>
Status Place(const std::string& root, const Fence& fence, FileSystem& fs, const Fill& fill) {
  const std::string place = root + "/" + std::string(kSourceDirectory);
  if (fs.Stat(place)) return {};
  const std::string staged = StagingDirectory(root, fence) + "/" + std::string(kSourceDirectory);
  if (Status s = RemoveTree(fs, staged); !s) return s;
  if (Status s = fs.MakeDirectory(staged); !s) {
    return Fail(s.error().code == ErrorCode::kNotFound ? FencedError(root, fence) : s.error());
  }
  if (Status s = fill(staged); !s) return s;
  if (Status s = fs.SyncDirectory(staged); !s) return s;
  if (Status s = fs.Rename(staged, place); !s) return s;
  return fs.SyncDirectory(root);
}

}  // namespace

Status KeepSourceFiles(const SourceFiles& source, const std::string& root, const Fence& fence, FileSystem& fs) {
  return Place(root, fence, fs, [&](const std::string& to) -> Status {
    for (const std::string_view carried : kCarried) {
      const std::string name = "/" + std::string(carried);
      if (Status s = CopyIfThere(source.directory + name, to + name, fs); !s) return s;
    }
    if (Status s = KeepHeaders(source.model, to, fs); !s) return s;
    const std::string index = "/" + std::string(kIndex), config = "/" + std::string(kConfig);
    if (Status s = CopyIfThere(source.directory + index, to + index, fs); !s) return s;
    return CopyIfThere(source.config.empty() ? source.directory + config : source.config, to + config, fs);
  });
}

Status ForEachModelFile(const std::string& directory, FileSystem& fs, const ModelFileVisit& visit) {
  std::vector<std::string_view> names(std::begin(kCarried), std::end(kCarried));
  names.insert(names.end(), {kIndex, kConfig});
  for (const std::string_view name : names) {
    const Result<std::string> text = ReadFollowed(fs, directory + "/" + std::string(name), kMostBytes);
    if (!text && text.error().code == ErrorCode::kNotFound) continue;
    if (!text) return Fail(text.error());
    if (Status s = visit(std::string(name), *text); !s) return s;
  }
  return {};
}

Status CopySourceFiles(const std::string& from_root, const std::string& root, const Fence& fence, FileSystem& fs) {
  const std::string from = from_root + "/" + std::string(kSourceDirectory);
  const Result<std::vector<std::string>> names = fs.ListDirectory(from);
  if (!names && names.error().code == ErrorCode::kNotFound) return {};
  if (!names) return Fail(names.error());
  return Place(root, fence, fs, [&](const std::string& to) -> Status {
    for (const std::string& name : *names) {
      if (Status s = CopyIfThere(from + "/" + name, to + "/" + name, fs); !s) return s;
    }
    return {};
  });
}

Result<CarriedFiles> ReadCarriedFiles(const std::string& root, FileSystem& fs) {
  CarriedFiles out;
  out.directory = root + "/" + std::string(kSourceDirectory);
  const Result<std::vector<std::string>> names = fs.ListDirectory(out.directory);
  if (!names && names.error().code == ErrorCode::kNotFound) return out;
  if (!names) return Fail(names.error());
  for (const std::string& name : *names) {
    const std::string path = out.directory + "/" + name;
    if (std::find(std::begin(kCarried), std::end(kCarried), name) != std::end(kCarried)) {
      out.names.push_back(name);
      continue;
    }
    if (name != kConfig && name != kIndex && !name.ends_with(kHeaderSuffix)) continue;  // not of our making
    Result<std::string> text = ReadWholeFile(fs, path, kMostBytes);
    if (!text) return Fail(text.error());
    if (name == kConfig) {
      out.config = std::move(*text);
    } else if (name == kIndex) {
      out.index = std::move(*text);
    } else {
      Result<SafetensorsHeader> header = ParseSafetensorsHeader(*text, FileBytes(*text));
      if (!header) return Fail(header.error().Wrap(path));
      out.headers.push_back({name.substr(0, name.size() - kHeaderSuffix.size()), std::move(*text), std::move(*header)});
    }
  }
  return out;
}

}  // namespace trainyard::checkpoint
