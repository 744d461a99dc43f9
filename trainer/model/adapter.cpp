#include "trainer/model/adapter.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace trainyard::model {
namespace {

constexpr const char* kWeight = ".weight";
constexpr const char* kDown = ".lora_A.weight";
constexpr const char* kUp = ".lora_B.weight";

// Without ".weight": what an adapter's names begin with.
std::string Stem(const engine::ParamSpec& spec) {
  return spec.name.substr(0, spec.name.size() - std::string(kWeight).size());
}

bool IsMatrix(const engine::ParamSpec& spec) { return spec.shape.size() == 2 && spec.name.ends_with(kWeight); }

std::string LastWord(const engine::ParamSpec& spec) {
  const std::string stem = Stem(spec);
  return stem.substr(stem.rfind('.') + 1);
}

// Last words of the matrices, each once, in their order.
std::vector<std::string> Words(const engine::UnitSpec& block) {
  std::vector<std::string> words;
  for (const engine::ParamSpec& spec : block.params) {
    if (!IsMatrix(spec)) continue;
    if (std::find(words.begin(), words.end(), LastWord(spec)) == words.end()) words.push_back(LastWord(spec));
  }
  return words;
}

void Check(const Adapter& adapter, const engine::UnitSpec& block) {
  if (adapter.rank < 1) throw std::invalid_argument("model.adapter.rank must be at least 1");
  if (!std::isfinite(adapter.alpha) || adapter.alpha <= 0) {
    throw std::invalid_argument("model.adapter.alpha must be above 0");
  }
  if (!(adapter.dropout >= 0 && adapter.dropout < 1)) {
    throw std::invalid_argument("model.adapter.dropout must be from 0 to below 1");
  }
  const std::vector<std::string> words = Words(block);
  for (const std::string& target : adapter.targets) {
    if (std::find(words.begin(), words.end(), target) != words.end()) continue;
    std::string known;
    for (const std::string& word : words) known += (known.empty() ? "" : ", ") + word;
    throw std::invalid_argument("model.adapter.targets: no matrix of the model's blocks is called '" + target +
                                "'; there are " + known);
  }
}

// A and B of a matrix. What tensor parallelism splits of the matrix it splits of the one that meets it.
std::vector<engine::ParamSpec> AdapterOf(const engine::ParamSpec& matrix, int64_t rank, bool input_first) {
  const int in_dim = input_first ? 0 : 1, out_dim = 1 - in_dim;
  const int64_t in = matrix.shape[static_cast<size_t>(in_dim)], out = matrix.shape[static_cast<size_t>(out_dim)];
  // PEFT draws A as a linear layer's weights: kaiming_uniform of a = sqrt(5), which is uniform within 1 / sqrt(in).
  engine::ParamSpec down{Stem(matrix) + kDown, {rank, in}, engine::Init::kUniform};
  down.init_std = 1.0 / std::sqrt(static_cast<double>(in));
  down.tensor_parallel_dim = matrix.tensor_parallel_dim == in_dim ? 1 : -1;
  engine::ParamSpec up{Stem(matrix) + kUp, {out, rank}, engine::Init::kZeros};
  up.tensor_parallel_dim = matrix.tensor_parallel_dim == out_dim ? 0 : -1;
  return {down, up};
}

}  // namespace

void AddAdapters(const Adapter& adapter, bool input_first, std::vector<engine::UnitSpec>& units) {
  Check(adapter, units.at(1));
  const auto& targets = adapter.targets;
  for (size_t u = 0; u < units.size(); ++u) {
    std::vector<engine::ParamSpec> added;
    for (engine::ParamSpec& spec : units[u].params) {
      spec.frozen = true;
      if (u == 0 || !IsMatrix(spec)) continue;
      spec.nf4 = adapter.nf4;
      if (!targets.empty() && std::find(targets.begin(), targets.end(), LastWord(spec)) == targets.end()) continue;
      for (engine::ParamSpec& one : AdapterOf(spec, adapter.rank, input_first)) added.push_back(std::move(one));
    }
    units[u].params.insert(units[u].params.end(), added.begin(), added.end());
  }
}

std::vector<int> AdapterPlaces(const engine::UnitSpec& block) {
  std::vector<int> places(block.params.size(), -1);
  for (size_t i = 0; i < block.params.size(); ++i) {
    if (!IsMatrix(block.params[i])) continue;
    for (size_t a = i + 1; a < block.params.size(); ++a) {
      if (block.params[a].name == Stem(block.params[i]) + kDown) places[i] = static_cast<int>(a);
    }
  }
  return places;
}

}  // namespace trainyard::model
