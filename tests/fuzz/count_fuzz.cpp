// Any text as a number of parameters: --model, spec.model.parameters.
#include <string_view>

#include "operator/base/quantity.h"
#include "operator/sizing/shape.h"
#include "tests/fuzz/fuzz_target.h"

using trainyard::fuzz::Require;
using trainyard::fuzz::RequireOneLine;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto count = trainyard::ParseCount(text);
  if (!count) {
    RequireOneLine(count.error().message);
    return 0;
  }
  Require(*count > 0, "a count is positive");
  Require(trainyard::ParseCount(std::to_string(*count)) == *count, "its digits are the same count");
  const auto shape = trainyard::sizing::ShapeFromCount(*count);
  if (!shape) {
    RequireOneLine(shape.error().message);
    return 0;
  }
  Require(trainyard::ParseCount(trainyard::FormatCount(*count)).has_value(),
          "what people are shown can be given again");
  Require(shape->parameters == *count, "a bare number stays the number that was given");
  Require(shape->layers > 0 && shape->heads > 0 && shape->hidden % shape->heads == 0, "its shape can be built");
  Require(trainyard::sizing::ActiveParameters(*shape) == *count, "a bare number is a dense model");
  return 0;
}
