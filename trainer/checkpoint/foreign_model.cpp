#include "trainer/checkpoint/foreign_model.h"

#include "trainer/checkpoint/dtype.h"
#include "trainer/checkpoint/huggingface.h"

namespace trainyard::checkpoint {
namespace {

tl::unexpected<Error> Bad(const std::string& what) { return Fail(ErrorCode::kInvalidArgument, what); }

std::string Words(const std::vector<int64_t>& shape) {
  return Box{std::vector<int64_t>(shape.size(), 0), shape}.ToString();
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
  for (const TensorInfo& tensor : ours) {
    const std::string foreign = names->Of(tensor.name);
    const auto found = tensors->all().find(foreign);
    if (found == tensors->all().end()) return Bad("tensor " + foreign + " is missing in " + directory);
    if (found->second.shape != tensor.global_shape) {
      return Bad("tensor " + foreign + " is " + Words(found->second.shape) + ", by config.json it is " +
                 Words(tensor.global_shape));
    }
    if (!IsFloat(found->second.dtype)) return Bad("tensor " + foreign + " is " + found->second.dtype + ", no float");
  }
  const auto ignored = static_cast<int64_t>(all.size()) - static_cast<int64_t>(ours.size());
  return ForeignModel(std::move(*tensors), std::move(*names), ignored);
}

Status ForeignModel::Read(const std::vector<TensorSlice>& wanted) {
  for (const TensorSlice& slice : wanted) {
    const auto found = tensors_.all().find(names_.Of(slice.name));
    if (found == tensors_.all().end() || found->second.shape != slice.global_shape) {
      return Bad("tensor " + slice.name + " of " + Words(slice.global_shape) + " is not in the source");
    }
    const Result<int64_t> bytes = tensors_.ReadBox(found->second, {slice.offset, slice.shape}, slice.dtype, slice.data);
    if (!bytes) return Fail(bytes.error().Wrap("tensor " + slice.name));
    bytes_ += *bytes;
  }
  return {};
}

}  // namespace trainyard::checkpoint
