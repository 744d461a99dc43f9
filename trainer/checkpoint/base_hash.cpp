#include "trainer/checkpoint/base_hash.h"

#include <algorithm>
#include <vector>

#include "trainer/checkpoint/huggingface.h"

namespace trainyard::checkpoint {
namespace {

constexpr int64_t kPieceBytes = 32 << 20;

std::string Words(const BaseReference& base) {
  return HexDigest(base.hash) + " (" + std::to_string(base.tensors) + " tensors, " + std::to_string(base.bytes) +
         " bytes)";
}

}  // namespace

BaseReference SizeOfBase(const ForeignModel& source, const ModelDescription& model, const std::string& directory) {
  BaseReference out{.directory = directory};
  for (const TensorInfo& tensor : TensorsOf(model)) {
    const std::string& dtype = source.tensors().all().at(source.names().Of(tensor.name)).dtype;
    ++out.tensors;
    out.bytes += *ElementCount(tensor.global_shape) * *DtypeBytes(dtype);
  }
  return out;
}

Result<BaseReference> HashBase(ForeignModel& source, const ModelDescription& model, const std::string& directory) {
  BaseReference out = SizeOfBase(source, model, directory);
  std::vector<char> piece;
  for (const TensorInfo& tensor : TensorsOf(model)) {
    const std::string dtype = source.tensors().all().at(source.names().Of(tensor.name)).dtype;
    const std::vector<int64_t>& shape = tensor.global_shape;
    const int64_t row_bytes = *ElementCount(shape) / shape[0] * *DtypeBytes(dtype);
    const int64_t most = std::max<int64_t>(1, kPieceBytes / row_bytes);
    for (int64_t row = 0; row < shape[0]; row += most) {
      TensorSlice slice{tensor.name, dtype, shape, std::vector<int64_t>(shape.size(), 0), shape, nullptr};
      slice.offset[0] = row;
      slice.shape[0] = std::min(most, shape[0] - row);
      piece.resize(static_cast<size_t>(slice.shape[0] * row_bytes));
      slice.data = piece.data();
      if (Status s = source.Read({slice}, &out.hash); !s) return Fail(s.error());
    }
  }
  return out;
}

std::string BaseDifference(const BaseReference& adapters, const BaseReference& found) {
  if (adapters.hash == found.hash) return "";
  // A status cuts long lines at their end: what tells the two apart comes first.
  return "the adapter belongs to another base: it was trained on " + Words(adapters) + ", and this is " + Words(found) +
         ", in " + found.directory + (adapters.directory.empty() ? "" : "; the other was in " + adapters.directory);
}

}  // namespace trainyard::checkpoint
