#include "operator/sizing/memory_tensors.h"

#include <algorithm>
#include <string_view>

#include "trainer/contract/packed.h"

namespace trainyard::sizing {
namespace {

double Elements(const TensorSums::Tensor& t) { return static_cast<double>(t.rows) * static_cast<double>(t.row_size); }

// model.layers.N.self_attn.q_proj.weight -> q_proj
std::string_view LastWord(std::string_view name) {
  const size_t end = name.rfind('.');
  if (end == std::string_view::npos) return name;
  const size_t begin = name.rfind('.', end - 1);
  return begin == std::string_view::npos ? name.substr(0, end) : name.substr(begin + 1, end - begin - 1);
}

bool IsTarget(const Adapter& adapter, std::string_view name) {
  if (adapter.targets.empty()) return true;
  return std::find(adapter.targets.begin(), adapter.targets.end(), LastWord(name)) != adapter.targets.end();
}

// The end of the model that a pipeline's fullest stage has: tensors outside the blocks come before the first block or
// after the last, in the order of the forward pass.
void MarkHeavierEnd(TensorSums& sums) {
  double ends[2] = {0, 0};
  bool after = false;
  for (const TensorSums::Tensor& t : sums.base) {
    after = after || t.in_block;
    if (!t.in_block) ends[after] += Elements(t) * static_cast<double>(t.copies);
  }
  sums.larger_end = std::max(ends[0], ends[1]);
  after = false;
  for (TensorSums::Tensor& t : sums.base) {
    after = after || t.in_block;
    t.heavier_end = !t.in_block && after == (ends[1] > ends[0]);
  }
}

}  // namespace

TensorSums SumTensors(const ModelShape& shape, const Adapter& adapter) {
  TensorSums sums;
  const double layers = static_cast<double>(std::max<int64_t>(1, shape.layers));
  double adapter_parameters = 0;
  double adapter_outputs = 0;
  for (const TensorCount& count : Tensors(shape)) {
    TensorSums::Tensor t;
    t.rows = count.shape.empty() ? 0 : count.shape.front();
    for (size_t d = 1; d < count.shape.size(); ++d) t.row_size *= count.shape[d];
    t.copies = count.copies;
    t.in_block = count.in_block;
    t.matrix = count.shape.size() > 1;
    sums.base.push_back(t);
    const double elements = Elements(t) * static_cast<double>(t.copies);
    sums.parameters += elements;
    if (!t.in_block) continue;
    if (t.matrix) {
      sums.largest_matrix = std::max(sums.largest_matrix, Elements(t));
      const double of_a_block = static_cast<double>(t.rows) * static_cast<double>(t.copies) / layers;
      sums.matrices += static_cast<double>(t.row_size) * of_a_block;
      sums.packed_matrices += static_cast<double>(contract::Nf4RowBytes(t.row_size)) * of_a_block;
    }
    if (adapter.type == AdapterType::kNone || !t.matrix || !IsTarget(adapter, count.name)) continue;
    for (const TensorSums::Tensor& a : {TensorSums::Tensor{adapter.rank, t.row_size, t.copies, true, true},
                                        TensorSums::Tensor{t.rows, adapter.rank, t.copies, true, true}}) {
      sums.adapters.push_back(a);
      adapter_parameters += Elements(a) * static_cast<double>(a.copies);
    }
    // A token passes some of the experts only.
    const bool expert = shape.experts > 0 && count.name.find(".E.") != std::string::npos;
    const double share = expert ? static_cast<double>(shape.experts_per_token) / static_cast<double>(shape.experts) : 1;
    adapter_outputs += static_cast<double>(adapter.rank) * static_cast<double>(t.copies) * share;
  }
  sums.block = static_cast<double>(BlockParameters(shape));
  sums.root = static_cast<double>(RootParameters(shape));
  const bool adapted = adapter.type != AdapterType::kNone;
  sums.trained = adapted ? adapter_parameters : sums.parameters;
  sums.trained_block = adapted ? adapter_parameters / layers : sums.block;
  sums.trained_root = adapted ? 0 : sums.root;
  sums.adapter_outputs = adapter_outputs / layers;
  MarkHeavierEnd(sums);
  return sums;
}

Status CheckTargets(const ModelShape& shape, const std::vector<std::string>& targets) {
  if (targets.empty()) return {};
  std::vector<std::string> words;
  for (const TensorCount& count : Tensors(shape)) {
    if (!count.in_block || count.shape.size() < 2) continue;
    const std::string word(LastWord(count.name));
    if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
  }
  for (const std::string& target : targets) {
    if (std::find(words.begin(), words.end(), target) != words.end()) continue;
    std::string known;
    for (const std::string& word : words) known += (known.empty() ? "" : ", ") + word;
    return Fail(ErrorCode::kInvalidArgument,
                "no matrix of the model's blocks is called '" + target + "'; there are " + known);
  }
  return {};
}

std::shared_ptr<const TensorSums> SumsOf(const MemoryInput& in) {
  return in.sums ? in.sums : std::make_shared<const TensorSums>(SumTensors(in.shape, in.adapter));
}

int64_t LayersHere(const MemoryInput& in) {
  const int64_t stages = std::max<int64_t>(1, in.pipeline_parallel);
  return (in.shape.layers + stages - 1) / stages;
}

double StatedOverCounted(const MemoryInput& in, const TensorSums& sums) {
  const double stated = static_cast<double>(in.shape.parameters);
  return sums.parameters > 0 && stated > 0 && stated != sums.parameters ? stated / sums.parameters : 1;
}

}  // namespace trainyard::sizing
