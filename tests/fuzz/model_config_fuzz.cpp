// Any text as the config.json of a model that is imported or started from: what is taken is written back as the same
// model, what is not is told in one line.
#include "tests/fuzz/fuzz_target.h"
#include "trainer/checkpoint/huggingface.h"

using trainyard::fuzz::Require;
using trainyard::fuzz::RequireOneLine;
using trainyard::fuzz::RequireUtf8;
namespace checkpoint = trainyard::checkpoint;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto config = nlohmann::json::parse(data, data + size, nullptr, false);
  if (config.is_discarded()) return 0;
  const auto model = checkpoint::ParseConfigJson(config);
  if (!model) {
    RequireOneLine(model.error().message);
    RequireUtf8(model.error().message);
    return 0;
  }
  Require(model->HeadDim() > 0 && model->heads % model->kv_heads == 0, "its heads can be built");
  Require(model->windowed_layers.empty() == (model->window == 0), "a window is in some layer");
  const auto back = checkpoint::ParseConfigJson(nlohmann::json(checkpoint::ConfigJson(*model, "BF16")));
  Require(back.has_value(), "what is written can be read");
  Require(*back == *model, "and is the same model");
  return 0;
}
