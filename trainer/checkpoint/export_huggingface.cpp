// ExportHuggingFace of export.h.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "trainer/checkpoint/dtype.h"
#include "trainer/checkpoint/export.h"
#include "trainer/checkpoint/export_directory.h"
#include "trainer/checkpoint/export_layout.h"
#include "trainer/checkpoint/huggingface.h"
#include "trainer/checkpoint/pieces.h"

namespace trainyard::checkpoint {
namespace {

constexpr int64_t kPieceBytes = 32 << 20;
constexpr int64_t kMostCarriedBytes = 256 << 20;

// config.json as it was carried along, with another dtype where one is asked for; ours where none was. Error:
// kFailedPrecondition when it is of another model than the checkpoint.
Result<std::string> ConfigText(const ModelDescription& model, const CarriedFiles& carried, const std::string& dtype) {
  if (carried.config.empty()) return ConfigJson(model, dtype.empty() ? "F32" : dtype).dump(2) + "\n";
  nlohmann::ordered_json config = nlohmann::ordered_json::parse(carried.config, nullptr, /*allow_exceptions=*/false);
  const Result<ModelDescription> theirs = ParseConfigJson(nlohmann::json(config));
  const std::string path = carried.directory + "/config.json";
  if (!theirs) return Fail(theirs.error().Wrap(path));
  const std::string difference = IdentityDifference(ModelIdentity(*theirs), ModelIdentity(model), "in the checkpoint");
  if (!difference.empty()) {
    return Fail(ErrorCode::kFailedPrecondition,
                path + " is of another model than the checkpoint: " + difference + "; remove it to export without");
  }
  if (dtype.empty()) return carried.config;
  config[config.contains("dtype") ? "dtype" : "torch_dtype"] = TorchDtype(dtype);
  return config.dump(2) + "\n";
}

class Exporter {
 public:
  Exporter(Reader& reader, ExportDirectory& directory, const CarriedFiles& carried, FileSystem& fs)
      : reader_(reader), directory_(directory), carried_(carried), fs_(fs) {}

  Result<ExportInfo> Run(const ExportLayout& layout, const std::string& config) {
    nlohmann::ordered_json weight_map = nlohmann::ordered_json::object();
    for (const LaidFile& file : layout.files) {
      if (Status s = WriteFile(file); !s) return Fail(s.error());
      for (const LaidTensor& tensor : file.tensors) weight_map[tensor.tensor.name] = file.name;
    }
    std::string index = layout.index;
    if (index.empty() && layout.files.size() > 1) {
      const nlohmann::ordered_json made = {{"metadata", {{"total_size", tensor_bytes_}}}, {"weight_map", weight_map}};
      index = made.dump(2) + "\n";
    }
    if (!index.empty()) {
      if (Status s = directory_.WriteText("model.safetensors.index.json", index); !s) return Fail(s.error());
    }
    for (const std::string& name : carried_.names) {
      const Result<std::string> text = ReadWholeFile(fs_, carried_.directory + "/" + name, kMostCarriedBytes);
      if (!text) return Fail(text.error());
      if (Status s = directory_.WriteText(name, *text); !s) return Fail(s.error());
    }
    if (Status s = directory_.WriteText("config.json", config); !s) return Fail(s.error());
    if (Status s = directory_.Finish(); !s) return Fail(s.error());
    info_.files = directory_.files();
    return std::move(info_);
  }

 private:
  Status WriteFile(const LaidFile& file) {
    std::vector<SafetensorsTensor> tensors;
    for (const LaidTensor& tensor : file.tensors) tensors.push_back(tensor.tensor);
    const std::string path = directory_.NewFile(file.name);
    Result<SafetensorsWriter> writer = file.header.empty()
                                           ? SafetensorsWriter::Create(path, tensors, /*sharded=*/false, fs_)
                                           : SafetensorsWriter::CreateWith(path, file.header, tensors, fs_);
    if (!writer) return Fail(writer.error());
    for (const LaidTensor& tensor : file.tensors) {
      if (Status s = WriteTensor(*reader_.Find(tensor.ours), tensor.tensor.dtype, *writer); !s) return s;
      ++info_.tensors;
    }
    info_.bytes += writer->bytes();
    return writer->Finish();
  }

  Status WriteTensor(const TensorInfo& tensor, const std::string& dtype, SafetensorsWriter& writer) {
    const int64_t from = *DtypeBytes(tensor.dtype), to = *DtypeBytes(dtype);
    return ForEachPiece(tensor.global_shape, kPieceBytes / std::max(from, to), [&](const Box& box) -> Status {
      const int64_t n = box.elements();
      stored_.resize(static_cast<size_t>(n * from));
      converted_.resize(static_cast<size_t>(n * to));
      const Status read =
          reader_.Read({{tensor.name, tensor.dtype, tensor.global_shape, box.offset, box.shape, stored_.data()}});
      if (!read) return read;
      if (Status s = NarrowFloats(tensor.dtype, stored_.data(), n, dtype, converted_.data()); !s) {
        return Fail(s.error().Wrap("tensor " + tensor.name));
      }
      tensor_bytes_ += n * to;
      return writer.Append(converted_.data(), n * to);
    });
  }

  Reader& reader_;
  ExportDirectory& directory_;
  const CarriedFiles& carried_;
  FileSystem& fs_;
  ExportInfo info_;
  int64_t tensor_bytes_ = 0;
  std::vector<char> stored_, converted_;
};

}  // namespace

Result<ExportInfo> ExportHuggingFace(Reader& reader, const std::string& directory, const HuggingFaceOptions& options,
                                     FileSystem& fs) {
  const std::string& dtype = options.dtype;
  if ((!dtype.empty() && dtype != "F32" && dtype != "BF16" && dtype != "F16") || options.shard_bytes < 0) {
    return Fail(ErrorCode::kInvalidArgument, "export is F32, BF16 or F16, in files of at least a byte");
  }
  const Result<ModelDescription> model = DescribeModel(reader);
  if (!model) return Fail(model.error());
  const Result<CarriedFiles> carried = ReadCarriedFiles(options.carried_root, fs);
  if (!carried) return Fail(carried.error());
  const Result<std::string> config = ConfigText(*model, *carried, dtype);
  if (!config) return Fail(config.error());
  Result<ExportDirectory> opened = ExportDirectory::Open(directory, fs);
  if (!opened) return Fail(opened.error());
  return Exporter(reader, *opened, *carried, fs).Run(LayOut(*model, *carried, dtype, options.shard_bytes), *config);
}

}  // namespace trainyard::checkpoint
