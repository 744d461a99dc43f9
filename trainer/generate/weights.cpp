#include "trainer/generate/weights.h"

#include <algorithm>

namespace trainyard::generate {
namespace {

constexpr int64_t kPieceBytes = 64 << 20;

std::string DtypeOf(at::ScalarType type) { return type == at::kBFloat16 ? "BF16" : "F32"; }

// Rows [first, first + to.size(0)) of a parameter into `to`, contiguous.
Status ReadRows(const engine::ParamSpec& spec, const std::string& dtype, int64_t first, const at::Tensor& to,
                const WeightReader& reader) {
  checkpoint::TensorSlice slice{spec.name, dtype, spec.shape, std::vector<int64_t>(spec.shape.size(), 0), spec.shape};
  slice.offset[0] = first;
  slice.shape[0] = to.size(0);
  slice.data = to.mutable_data_ptr();
  return reader.read({slice});
}

// By rows, where the format is not the one of `to`.
Status ReadAsItIs(const engine::ParamSpec& spec, const at::Tensor& to, const WeightReader& reader) {
  const std::string wanted = DtypeOf(to.scalar_type());
  const Result<std::string> dtype = reader.dtype(spec.name, wanted);
  if (!dtype) return Fail(dtype.error());
  if (*dtype == wanted) return ReadRows(spec, wanted, 0, to, reader);
  if (*dtype != "F32" && *dtype != "BF16") {
    return Fail(ErrorCode::kInvalidArgument, spec.name + " is stored as " + *dtype + ", which is no F32 and no BF16");
  }
  const at::ScalarType stored = *dtype == "BF16" ? at::kBFloat16 : at::kFloat;
  const int64_t row_bytes = std::max<int64_t>(1, spec.row_size()) * 4;
  const int64_t most = std::max<int64_t>(1, kPieceBytes / row_bytes);
  for (int64_t first = 0; first < spec.rows(); first += most) {
    const at::Tensor part = to.narrow(0, first, std::min(most, spec.rows() - first));
    const at::Tensor piece = at::empty(part.sizes(), stored);
    if (Status read = ReadRows(spec, *dtype, first, piece, reader); !read) return read;
    part.copy_(piece);
  }
  return {};
}

Status ReadParam(const engine::ParamSpec& spec, const at::Tensor& to, const WeightReader& reader) {
  if (reader.addition == nullptr) return ReadAsItIs(spec, to, reader);
  const Result<at::Tensor> added = reader.addition(spec);
  if (!added) return Fail(added.error());
  if (!added->defined()) return ReadAsItIs(spec, to, reader);
  const at::Tensor sum = at::empty(to.sizes(), at::kFloat);
  if (Status read = ReadAsItIs(spec, sum, reader); !read) return read;
  to.copy_(sum.add_(*added));
  return {};
}

}  // namespace

Result<std::unique_ptr<Weights>> Weights::Load(const std::vector<engine::UnitSpec>& units, at::ScalarType type,
                                               const WeightReader& reader) {
  const at::NoGradGuard no_grad;
  auto weights = std::make_unique<Weights>();
  for (const engine::UnitSpec& unit : units) {
    std::vector<at::Tensor>& params = weights->params_.emplace_back();
    for (const engine::ParamSpec& spec : unit.params) {
      params.push_back(at::empty(spec.shape, type));
      if (Status read = ReadParam(spec, params.back(), reader); !read) return Fail(read.error());
    }
  }
  return weights;
}

int64_t Weights::count() const {
  int64_t numbers = 0;
  for (const auto& unit : params_) {
    for (const at::Tensor& p : unit) numbers += p.numel();
  }
  return numbers;
}

}  // namespace trainyard::generate
