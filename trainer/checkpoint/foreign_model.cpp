#include "trainer/checkpoint/foreign_model.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "trainer/checkpoint/dtype.h"
#include "trainer/checkpoint/huggingface.h"
#include "trainer/contract/row_hash.h"

namespace trainyard::checkpoint {
namespace {

constexpr int64_t kPieceBytes = 4 << 20;

tl::unexpected<Error> Bad(const std::string& what) { return Fail(ErrorCode::kInvalidArgument, what); }

// "[2, 3]"
std::string Words(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

// A parameter of a block, by its name. GPT-2's mask is called attn.bias, and is none.
bool IsBlockParameter(std::string_view name) {
  const bool block = name.starts_with("model.layers.") || name.starts_with("transformer.h.");
  return block && (name.ends_with(".weight") || name.ends_with(".bias")) && !name.ends_with(".attn.bias");
}

}  // namespace

Result<ForeignModel> ForeignModel::Open(const std::string& directory, const ModelDescription& model, FileSystem& fs) {
  Result<ForeignTensors> tensors = ForeignTensors::Open(directory, fs);
  if (!tensors) return Fail(tensors.error());
  std::vector<std::string> all;
  for (const auto& [name, tensor] : tensors->all()) all.push_back(name);
  Result<ForeignNames> names = ForeignNames::Learn(model, all);
  if (!names) return Fail(names.error());
  const std::vector<TensorInfo> ours = TensorsOf(model);
  std::set<std::string> known;
  for (const TensorInfo& tensor : ours) {
    const std::string foreign = names->Of(tensor.name);
    const auto found = tensors->all().find(foreign);
    if (found == tensors->all().end()) return Bad("tensor " + foreign + " is missing in " + directory);
    const auto bad = [&](const std::string& what) {
      return Bad(tensors->files()[found->second.parts[0].file] + ": tensor " + foreign + what);
    };
    if (found->second.shape != tensor.global_shape) {
      return bad(" is " + Words(found->second.shape) + ", by config.json it is " + Words(tensor.global_shape));
    }
    if (!IsFloat(found->second.dtype)) {
      return bad(" is " + found->second.dtype + "; F32, BF16 and F16 can be read: save the model in one of them");
    }
    known.insert(foreign);
  }
  // A layer or a bias that config.json does not know of would be left out of what the model computes.
  for (const auto& [name, tensor] : tensors->all()) {
    if (known.contains(name) || !IsBlockParameter(names->Whole(name))) continue;
    return Bad(tensors->files()[tensor.parts[0].file] + ": tensor " + name +
               " is a parameter that the model of config.json does not have: the two do not belong together");
  }
  const auto ignored = static_cast<int64_t>(all.size()) - static_cast<int64_t>(ours.size());
  return ForeignModel(std::move(*tensors), std::move(*names), ignored);
}

Result<int64_t> ForeignModel::ReadHashed(const ForeignTensors::Tensor& tensor, const TensorSlice& slice,
                                         uint64_t& hash) {
  if (slice.shape.empty()) return Bad("a number has no rows to hash");
  Box piece{slice.offset, slice.shape};
  for (size_t d = 1; d < piece.shape.size(); ++d) {
    if (piece.shape[d] != tensor.shape[d]) return Bad("a part of a row cannot be hashed");
  }
  const int64_t elements = *ElementCount(tensor.shape) / std::max<int64_t>(1, tensor.shape[0]);  // of a row
  const int64_t row_bytes = elements * *DtypeBytes(tensor.dtype), to = elements * *DtypeBytes(slice.dtype);
  const int64_t most = std::max<int64_t>(1, kPieceBytes / std::max<int64_t>(1, row_bytes));
  int64_t bytes = 0;
  for (int64_t done = 0; done < slice.shape[0]; done += most) {
    piece.offset[0] = slice.offset[0] + done;
    piece.shape[0] = std::min(most, slice.shape[0] - done);
    rows_.resize(static_cast<size_t>(piece.shape[0] * row_bytes));
    const Result<int64_t> got = tensors_.ReadBox(tensor, piece, tensor.dtype, rows_.data());
    if (!got) return got;
    bytes += *got;
    hash += contract::HashRows(slice.name, piece.offset[0], piece.shape[0], row_bytes, rows_.data());
    char* data = static_cast<char*>(slice.data) + done * to;
    if (Status s = ConvertFloats(tensor.dtype, rows_.data(), piece.elements(), slice.dtype, data); !s) {
      return Fail(s.error());
    }
  }
  return bytes;
}

Status ForeignModel::Read(const std::vector<TensorSlice>& wanted, uint64_t* hash) {
  for (const TensorSlice& slice : wanted) {
    const auto found = tensors_.all().find(names_.Of(slice.name));
    if (found == tensors_.all().end() || found->second.shape != slice.global_shape) {
      return Bad("tensor " + slice.name + " of " + Words(slice.global_shape) + " is not in the source");
    }
    const Result<int64_t> bytes =
        hash != nullptr ? ReadHashed(found->second, slice, *hash)
                        : tensors_.ReadBox(found->second, {slice.offset, slice.shape}, slice.dtype, slice.data);
    if (!bytes) return Fail(bytes.error().Wrap("tensor " + slice.name));
    bytes_ += *bytes;
  }
  return {};
}

}  // namespace trainyard::checkpoint
