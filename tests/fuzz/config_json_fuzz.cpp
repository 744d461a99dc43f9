// Any text as a Hugging Face config.json.
#include "operator/sizing/shape.h"
#include "tests/fuzz/fuzz_target.h"

using trainyard::fuzz::Require;
using trainyard::fuzz::RequireOneLine;
using trainyard::fuzz::RequireUtf8;
namespace sizing = trainyard::sizing;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto config = nlohmann::json::parse(data, data + size, nullptr, false);
  if (config.is_discarded()) return 0;
  const auto shape = sizing::ShapeFromConfigJson(config);
  if (!shape) {
    RequireOneLine(shape.error().message);
    RequireUtf8(shape.error().message);
    return 0;
  }
  if (!shape->assumption.empty()) RequireOneLine(shape->assumption);
  int64_t sum = 0;
  for (const auto& tensor : sizing::Tensors(*shape)) {
    Require(tensor.Elements() >= 0, "no tensor has fewer than no elements: " + tensor.name);
    sum += tensor.Elements();
  }
  Require(sum == shape->parameters && sum > 0, "the tensors add up to the count");
  const int64_t active = sizing::ActiveParameters(*shape);
  Require(active > 0 && active <= sum, "a token meets some of the parameters, and no more than all");
  Require(sizing::RootParameters(*shape) + sizing::BlockParameters(*shape) <= sum, "a block and the root are parts");
  Require(shape->HeadDim() > 0 && shape->heads % shape->kv_heads == 0, "its heads can be built");
  Require(shape->TokenFfn() > 0, "a token passes an MLP");
  return 0;
}
