// Writes a small checkpoint of three ranks into a directory and says on standard output what it must hold: for the
// tests that read it with Python. The tensors of sample.h, of a whole model with its train state, or of an adapter of
// one.
#include <cstdio>
#include <string>

#include <nlohmann/json.hpp>

#include "operator/base/ids.h"
#include "tests/trainer/checkpoint/model_sample.h"
#include "trainer/checkpoint/fence.h"

namespace trainyard::checkpoint {
namespace {

constexpr int64_t kStep = 5;
constexpr int kWorld = 3;

// Each tensor's name, shape, and the first element before it is taken modulo 8388593.
std::string Describe(const std::vector<SampleTensor>& tensors) {
  nlohmann::json out = nlohmann::json::array();
  for (const TensorSlice& slice : SampleShards(tensors, 0, kWorld, kStep).all()) {
    out.push_back({{"name", slice.name},
                   {"shape", slice.global_shape},
                   {"base", (StableHash(slice.name) + static_cast<uint64_t>(kStep)) % 8388593u}});
  }
  return out.dump();
}

Result<std::string> WriteSample(const std::string& root) {
  const Fence fence{"sample", 1, 0};
  if (Result<TakeOverInfo> taken = TakeOver(root, fence); !taken) return Fail(taken.error());
  if (Result<CommitInfo> info = SaveSample(root, kStep, fence, kWorld); !info) return Fail(info.error());
  return Describe(SmallModel());
}

std::string WriteModel(const std::string& root, const ModelDescription& model) {
  SaveModel(root, model, kStep, kWorld);
  std::vector<SampleTensor> tensors;
  for (const TensorInfo& tensor : TensorsOf(model)) tensors.push_back({tensor.name, tensor.global_shape});
  return Describe(tensors);
}

// The adapter of such a model, of rank 4 for all its matrices.
std::string WriteAdapter(const std::string& root, const ModelDescription& model) {
  AdapterState state{.model = model, .adapter = {.rank = 4, .alpha = 8, .dropout = 0.1}, .base = {}};
  state.adapter.targets = *ResolveTargets(model, {});
  SaveAdapter(root, state, kStep, kWorld);
  std::vector<SampleTensor> tensors;
  for (const TensorInfo& t : AdapterTensorsOf(model, state.adapter)) tensors.push_back({t.name, t.global_shape});
  return Describe(tensors);
}

int Main(int argc, char** argv) {
  const std::string what = argc > 2 ? argv[2] : "", part = argc > 3 ? argv[3] : "";
  if (argc < 2 || argc > 4 || (argc > 2 && what != "llama" && what != "gpt2") || (argc > 3 && part != "adapter")) {
    std::fprintf(stderr, "usage: checkpoint_sample DIRECTORY [llama|gpt2 [adapter]]\n");
    return 2;
  }
  const ModelDescription model = what == "gpt2" ? SmallGpt2() : SmallLlama();
  Result<std::string> text = what.empty()   ? WriteSample(argv[1])
                             : part.empty() ? WriteModel(argv[1], model)
                                            : Result<std::string>(WriteAdapter(argv[1], model));
  if (!text) {
    std::fprintf(stderr, "checkpoint_sample: %s\n", text.error().message.c_str());
    return 1;
  }
  std::printf("%s\n", text->c_str());
  return 0;
}

}  // namespace
}  // namespace trainyard::checkpoint

int main(int argc, char** argv) { return trainyard::checkpoint::Main(argc, argv); }
