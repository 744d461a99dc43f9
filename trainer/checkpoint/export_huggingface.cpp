// ExportHuggingFace of export.h.
#include <algorithm>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "trainer/checkpoint/dtype.h"
#include "trainer/checkpoint/export.h"
#include "trainer/checkpoint/export_directory.h"
#include "trainer/checkpoint/huggingface.h"
#include "trainer/checkpoint/pieces.h"
#include "trainer/checkpoint/safetensors_file.h"

namespace trainyard::checkpoint {
namespace {

constexpr int64_t kPieceBytes = 32 << 20;

using File = std::vector<SafetensorsTensor>;

// In order, as many as fit into a file; one that is too large alone gets a file of its own.
std::vector<File> Split(const std::vector<TensorInfo>& tensors, const HuggingFaceOptions& options) {
  std::vector<File> files;
  int64_t bytes = 0;
  for (const TensorInfo& tensor : tensors) {
    const int64_t size = *ElementCount(tensor.global_shape) * *DtypeBytes(options.dtype);
    if (files.empty() || bytes + size > options.shard_bytes) {
      files.emplace_back();
      bytes = 0;
    }
    bytes += size;
    files.back().push_back({tensor.name, options.dtype, tensor.global_shape, {}});
  }
  return files;
}

std::string FileName(size_t index, size_t count) {
  if (count == 1) return "model.safetensors";
  char text[64];
  std::snprintf(text, sizeof(text), "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return text;
}

class Exporter {
 public:
  Exporter(Reader& reader, ExportDirectory& directory, const HuggingFaceOptions& options, FileSystem& fs)
      : reader_(reader), directory_(directory), options_(options), fs_(fs) {}

  Result<ExportInfo> Run(const ModelDescription& model) {
    const std::vector<File> files = Split(TensorsOf(model), options_);
    nlohmann::ordered_json weight_map = nlohmann::ordered_json::object();
    for (size_t i = 0; i < files.size(); ++i) {
      const std::string name = FileName(i, files.size());
      if (Status s = WriteFile(directory_.NewFile(name), files[i]); !s) return Fail(s.error());
      for (const SafetensorsTensor& tensor : files[i]) weight_map[tensor.name] = name;
    }
    if (files.size() > 1) {
      const nlohmann::ordered_json index = {{"metadata", {{"total_size", tensor_bytes_}}}, {"weight_map", weight_map}};
      if (Status s = directory_.WriteText("model.safetensors.index.json", index.dump(2) + "\n"); !s) {
        return Fail(s.error());
      }
    }
    const std::string config = ConfigJson(model, options_.dtype).dump(2) + "\n";
    if (Status s = directory_.WriteText("config.json", config); !s) return Fail(s.error());
    if (Status s = directory_.Finish(); !s) return Fail(s.error());
    info_.files = directory_.files();
    return std::move(info_);
  }

 private:
  Status WriteFile(const std::string& path, const File& tensors) {
    Result<SafetensorsWriter> writer = SafetensorsWriter::Create(path, tensors, /*sharded=*/false, fs_);
    if (!writer) return Fail(writer.error());
    for (const SafetensorsTensor& tensor : tensors) {
      if (Status s = WriteTensor(*reader_.Find(tensor.name), *writer); !s) return s;
      ++info_.tensors;
    }
    info_.bytes += writer->bytes();
    return writer->Finish();
  }

  Status WriteTensor(const TensorInfo& tensor, SafetensorsWriter& writer) {
    const int64_t from = *DtypeBytes(tensor.dtype), to = *DtypeBytes(options_.dtype);
    return ForEachPiece(tensor.global_shape, kPieceBytes / std::max(from, to), [&](const Box& box) -> Status {
      const int64_t n = box.elements();
      stored_.resize(static_cast<size_t>(n * from));
      converted_.resize(static_cast<size_t>(n * to));
      const Status read =
          reader_.Read({{tensor.name, tensor.dtype, tensor.global_shape, box.offset, box.shape, stored_.data()}});
      if (!read) return read;
      if (Status s = ConvertFloats(tensor.dtype, stored_.data(), n, options_.dtype, converted_.data()); !s) {
        return Fail(s.error().Wrap("tensor " + tensor.name));
      }
      tensor_bytes_ += n * to;
      return writer.Append(converted_.data(), n * to);
    });
  }

  Reader& reader_;
  ExportDirectory& directory_;
  const HuggingFaceOptions& options_;
  FileSystem& fs_;
  ExportInfo info_;
  int64_t tensor_bytes_ = 0;
  std::vector<char> stored_, converted_;
};

}  // namespace

Result<ExportInfo> ExportHuggingFace(Reader& reader, const std::string& directory, const HuggingFaceOptions& options,
                                     FileSystem& fs) {
  if ((options.dtype != "F32" && options.dtype != "BF16") || options.shard_bytes < 1) {
    return Fail(ErrorCode::kInvalidArgument, "export is F32 or BF16, in files of at least a byte");
  }
  const Result<ModelDescription> model = DescribeModel(reader);
  if (!model) return Fail(model.error());
  Result<ExportDirectory> opened = ExportDirectory::Open(directory, fs);
  if (!opened) return Fail(opened.error());
  return Exporter(reader, *opened, options, fs).Run(*model);
}

}  // namespace trainyard::checkpoint
