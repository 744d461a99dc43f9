#include "trainer/checkpoint/export_layout.h"

#include <cstdio>
#include <map>

#include "trainer/checkpoint/dtype.h"
#include "trainer/checkpoint/foreign_names.h"

namespace trainyard::checkpoint {
namespace {

constexpr int64_t kShardBytes = 5'000'000'000;  // as transformers

std::string FileName(size_t index, size_t count) {
  if (count == 1) return "model.safetensors";
  char text[64];
  std::snprintf(text, sizeof(text), "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return text;
}

// In order, as many as fit into a file; one that is too large alone gets a file of its own.
ExportLayout Split(const std::vector<TensorInfo>& tensors, const std::map<std::string, std::string>& dtypes,
                   const std::string& dtype, int64_t shard_bytes) {
  ExportLayout out;
  int64_t bytes = 0;
  for (const TensorInfo& tensor : tensors) {
    const auto theirs = dtypes.find(tensor.name);
    const std::string type = !dtype.empty() ? dtype : theirs != dtypes.end() ? theirs->second : "F32";
    const int64_t size = *ElementCount(tensor.global_shape) * *DtypeBytes(type);
    if (out.files.empty() || bytes + size > shard_bytes) {
      out.files.emplace_back();
      bytes = 0;
    }
    bytes += size;
    out.files.back().tensors.push_back({{tensor.name, type, tensor.global_shape, {}}, tensor.name});
  }
  for (size_t i = 0; i < out.files.size(); ++i) out.files[i].name = FileName(i, out.files.size());
  return out;
}

// Tensors of theirs -> ours.
std::map<std::string, const TensorInfo*> OursOf(const ModelDescription& model, const std::vector<TensorInfo>& tensors,
                                                const CarriedFiles& carried) {
  std::vector<std::string> theirs;
  for (const SourceHeader& file : carried.headers) {
    for (const SafetensorsEntry& entry : file.header.entries) theirs.push_back(entry.name);
  }
  std::map<std::string, const TensorInfo*> out;
  const Result<ForeignNames> names = ForeignNames::Learn(model, theirs);
  if (!names) return out;
  for (const TensorInfo& tensor : tensors) out[names->Of(tensor.name)] = &tensor;
  if (model.tied) out[names->Of("lm_head.weight")] = &tensors.front();  // the embedding comes first
  return out;
}

ExportLayout AsTheyWere(const std::map<std::string, const TensorInfo*>& ours, const CarriedFiles& carried) {
  ExportLayout out;
  out.index = carried.index;
  for (const SourceHeader& source : carried.headers) {
    LaidFile file{source.file, source.bytes, {}};
    for (const SafetensorsEntry& entry : source.header.entries) {
      const auto found = ours.find(entry.name);
      if (found == ours.end()) {
        file.header.clear(), out.index.clear();
        continue;
      }
      file.tensors.push_back({{entry.name, entry.dtype, entry.box.shape, {}}, found->second->name});
    }
    if (!file.tensors.empty()) out.files.push_back(std::move(file));
  }
  return out;
}

// Every parameter once, in its shape and as a float: else the headers are of something else.
bool Covers(const ExportLayout& layout, const std::vector<TensorInfo>& tensors) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const LaidFile& file : layout.files) {
    for (const LaidTensor& tensor : file.tensors) {
      if (!IsFloat(tensor.tensor.dtype)) return false;
      shapes[tensor.ours] = tensor.tensor.shape;
    }
  }
  for (const TensorInfo& tensor : tensors) {
    const auto found = shapes.find(tensor.name);
    if (found == shapes.end() || found->second != tensor.global_shape) return false;
  }
  return true;
}

}  // namespace

ExportLayout LayOut(const ModelDescription& model, const CarriedFiles& carried, const std::string& dtype,
                    int64_t shard_bytes) {
  const std::vector<TensorInfo> tensors = TensorsOf(model);
  const std::map<std::string, const TensorInfo*> ours = OursOf(model, tensors, carried);
  ExportLayout as_they_were = AsTheyWere(ours, carried);
  std::map<std::string, std::string> dtypes;
  if (Covers(as_they_were, tensors)) {
    if (dtype.empty() && shard_bytes == 0) return as_they_were;
    for (const LaidFile& file : as_they_were.files) {
      for (const LaidTensor& tensor : file.tensors) dtypes[tensor.ours] = tensor.tensor.dtype;
    }
  }
  return Split(tensors, dtypes, dtype, shard_bytes > 0 ? shard_bytes : kShardBytes);
}

}  // namespace trainyard::checkpoint
