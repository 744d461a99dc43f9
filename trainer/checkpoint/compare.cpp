#include "trainer/checkpoint/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "trainer/checkpoint/dtype.h"
#include "trainer/checkpoint/pieces.h"

namespace trainyard::checkpoint {
namespace {

// Of one tensor on each side, in memory at a time.
constexpr int64_t kPieceBytes = 32 << 20;
// Elements that are turned into numbers at once.
constexpr int64_t kValues = 4096;

std::string Words(const std::vector<int64_t>& shape) {
  return Box{std::vector<int64_t>(shape.size(), 0), shape}.ToString();
}

// Two pieces of as many elements.
class PieceComparer {
 public:
  PieceComparer(const TensorInfo& a, const TensorInfo& b)
      : a_(a), b_(b), size_a_(*DtypeBytes(a.dtype)), size_b_(*DtypeBytes(b.dtype)) {}

  void Compare(const char* a, const char* b, int64_t n, TensorDifference& out) {
    if (a_.dtype == b_.dtype && std::memcmp(a, b, static_cast<size_t>(n * size_a_)) == 0) return;
    for (int64_t at = 0; at < n; at += kValues) {
      Values(a + at * size_a_, b + at * size_b_, std::min(kValues, n - at), out);
    }
  }

 private:
  void Values(const char* a, const char* b, int64_t n, TensorDifference& out) {
    const bool values = HasValues(a_.dtype) && HasValues(b_.dtype);
    if (values) {
      ToDouble(a_.dtype, a, n, x_);
      ToDouble(b_.dtype, b, n, y_);
    }
    for (int64_t i = 0; i < n; ++i) {
      const bool same = a_.dtype == b_.dtype
                            ? std::memcmp(a + i * size_a_, b + i * size_a_, static_cast<size_t>(size_a_)) == 0
                            : values && (x_[i] == y_[i] || (std::isnan(x_[i]) && std::isnan(y_[i])));
      if (same) continue;
      ++out.different;
      if (!values) continue;
      if (!std::isfinite(x_[i]) || !std::isfinite(y_[i])) {
        ++out.not_finite;
        continue;
      }
      const double apart = std::abs(x_[i] - y_[i]);
      out.largest_absolute = std::max(out.largest_absolute, apart);
      if (apart > 0) {
        out.largest_relative = std::max(out.largest_relative, apart / std::max(std::abs(x_[i]), std::abs(y_[i])));
      }
    }
  }

  const TensorInfo& a_;
  const TensorInfo& b_;
  const int64_t size_a_, size_b_;
  double x_[kValues], y_[kValues];
};

class Comparer {
 public:
  Comparer(Reader& a, Reader& b) : a_(a), b_(b) {}

  // Nothing when they are the same.
  Result<std::optional<TensorDifference>> Tensor(const TensorInfo& a, const TensorInfo& b) {
    TensorDifference out;
    out.name = a.name;
    if (a.global_shape != b.global_shape) {
      out.structure = Words(a.global_shape) + " and " + Words(b.global_shape);
      return out;
    }
    out.elements = *ElementCount(a.global_shape);
    if (a.dtype != b.dtype) out.dtypes = a.dtype + " and " + b.dtype;
    PieceComparer comparer(a, b);
    const int64_t widest = std::max(*DtypeBytes(a.dtype), *DtypeBytes(b.dtype));
    Status walked = ForEachPiece(a.global_shape, kPieceBytes / widest, [&](const Box& box) -> Status {
      if (Status s = ReadPiece(a_, a, box, one_); !s) return s;
      if (Status s = ReadPiece(b_, b, box, two_); !s) return s;
      comparer.Compare(one_.data(), two_.data(), box.elements(), out);
      return {};
    });
    if (!walked) return Fail(walked.error());
    if (out.different == 0 && out.dtypes.empty()) return std::optional<TensorDifference>();
    return out;
  }

 private:
  static Status ReadPiece(Reader& reader, const TensorInfo& tensor, const Box& box, std::vector<char>& memory) {
    memory.resize(static_cast<size_t>(box.elements() * *DtypeBytes(tensor.dtype)));
    return reader.Read({{tensor.name, tensor.dtype, tensor.global_shape, box.offset, box.shape, memory.data()}});
  }

  Reader& a_;
  Reader& b_;
  std::vector<char> one_, two_;
};

// Without what says nothing about the state: where the base of an adapter lay.
nlohmann::json Comparable(nlohmann::json state) {
  if (state.contains("base") && state["base"].is_object()) state["base"].erase("directory");
  return state;
}

// Keys of two objects whose values differ, one level deep.
std::vector<std::string> DifferentKeys(const nlohmann::json& a, const nlohmann::json& b) {
  std::set<std::string> keys;
  for (const nlohmann::json* side : {&a, &b}) {
    for (const auto& [key, value] : side->items()) {
      if (!a.contains(key) || !b.contains(key) || a[key] != b[key]) keys.insert(key);
    }
  }
  return {keys.begin(), keys.end()};
}

}  // namespace

Result<Comparison> Compare(Reader& a, Reader& b, bool model_only) {
  Comparison out;
  Comparer comparer(a, b);
  const auto wanted = [&](const TensorInfo& tensor) { return !model_only || tensor.group == kModelGroup; };
  const auto alone = [&](const std::string& name, const char* where) {
    TensorDifference difference;
    difference.name = name;
    difference.structure = where;
    out.differences.push_back(std::move(difference));
  };
  for (const TensorInfo& tensor : a.tensors()) {
    if (!wanted(tensor)) continue;
    const TensorInfo* other = b.Find(tensor.name);
    if (other == nullptr) {
      alone(tensor.name, "only in the first");
      continue;
    }
    ++out.tensors;
    out.bytes += *ElementCount(tensor.global_shape) * *DtypeBytes(tensor.dtype);
    Result<std::optional<TensorDifference>> difference = comparer.Tensor(tensor, *other);
    if (!difference) return Fail(difference.error());
    if (*difference) out.differences.push_back(std::move(**difference));
  }
  for (const TensorInfo& tensor : b.tensors()) {
    if (wanted(tensor) && a.Find(tensor.name) == nullptr) alone(tensor.name, "only in the second");
  }
  out.train_state = DifferentKeys(Comparable(a.train_state()), Comparable(b.train_state()));
  return out;
}

}  // namespace trainyard::checkpoint
