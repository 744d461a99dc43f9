// ExportDcp of export.h.
#include <cstdio>

#include "trainer/checkpoint/export.h"
#include "trainer/checkpoint/export_directory.h"
#include "trainer/checkpoint/manifest_file.h"
#include "trainer/checkpoint/safetensors_file.h"
#include "trainer/checkpoint/shard_reader.h"
#include "trainer/checkpoint/use_lock.h"

namespace trainyard::checkpoint {
namespace {

// PyTorch's reader does not look into subdirectories: model and optimizer are files 1 and 2 of each shard.
std::string FileName(const ShardFile& file) {
  char text[80];
  std::snprintf(text, sizeof(text), "shard-%05d-model-%05d-of-00002.safetensors", file.rank + 1,
                file.path.starts_with(kModelGroup) ? 1 : 2);
  return text;
}

Status CopyShard(const std::string& path, const Manifest& manifest, const ShardFile& file, const std::string& to,
                 ExportInfo& info, FileSystem& fs) {
  std::vector<SafetensorsTensor> tensors;
  std::vector<BlockRange> all;
  int64_t read = 0;
  Result<ShardReader> shard = ShardReader::Open(path, file, fs, read);
  if (!shard) return Fail(shard.error().Wrap(path + "/" + file.path));
  for (size_t c = 0; c < file.chunks.size(); ++c) {
    const TensorInfo& tensor = manifest.tensors[static_cast<size_t>(file.chunks[c].tensor)];
    tensors.push_back({tensor.name, tensor.dtype, file.chunks[c].box.shape, file.chunks[c].box.offset});
    all.push_back(shard->All(static_cast<int64_t>(c)));
  }
  Result<SafetensorsWriter> writer = SafetensorsWriter::Create(to, tensors, /*sharded=*/true, fs);
  if (!writer) return Fail(writer.error());
  const Status copied =
      shard->Read(all, [&](int64_t chunk, int64_t, std::string_view bytes, const Status& check) -> Status {
        if (check) return writer->Append(bytes.data(), static_cast<int64_t>(bytes.size()));
        return Fail(check.error().Wrap(path + "/" + file.path + ": tensor " + tensors[static_cast<size_t>(chunk)].name +
                                       " of rank " + std::to_string(file.rank)));
      });
  if (!copied) return copied;
  info.bytes += writer->bytes();
  return writer->Finish();
}

}  // namespace

Result<ExportInfo> ExportDcp(const std::string& path, const std::string& directory, FileSystem& fs) {
  Result<UseLock> in_use = UseLock::ToRead(path);
  if (!in_use) return Fail(in_use.error());
  int64_t ignored = 0;
  const Result<Manifest> manifest = LoadManifest(path, fs, ignored);
  if (!manifest) return Fail(manifest.error());
  for (const Untiled& untiled : FindUntiled(*manifest)) {
    return Fail(ErrorCode::kDataLoss, path + ": tensor " + untiled.tensor + ": " + untiled.reason);
  }
  const Result<nlohmann::json> state = LoadTrainState(path, *manifest, fs, ignored);
  if (!state) return Fail(state.error());
  Result<ExportDirectory> out = ExportDirectory::Open(directory, fs);
  if (!out) return Fail(out.error());
  ExportInfo info;
  info.tensors = static_cast<int64_t>(manifest->tensors.size());
  for (const ShardFile& file : manifest->files) {
    if (Status s = CopyShard(path, *manifest, file, out->NewFile(FileName(file)), info, fs); !s) return Fail(s.error());
  }
  if (Status s = out->WriteText(std::string(kTrainStateFile), state->dump(2) + "\n"); !s) return Fail(s.error());
  if (Status s = out->Finish(); !s) return Fail(s.error());
  info.files = out->files();
  return info;
}

}  // namespace trainyard::checkpoint
