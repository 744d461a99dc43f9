#include "operator/sizing/reference_shapes.h"

#include <algorithm>
#include <cmath>

#include "operator/base/quantity.h"

namespace trainyard::sizing {
namespace {

// A published model stands for every number within this factor of it.
constexpr double kSameSize = 1.12;

ModelShape Llama(const char* name, int64_t layers, int64_t hidden, int64_t heads, int64_t kv_heads, int64_t ffn,
                 int64_t vocab, int64_t max_positions, bool tied) {
  ModelShape m;
  m.name = name;
  m.layers = layers;
  m.hidden = hidden;
  m.heads = heads;
  m.kv_heads = kv_heads;
  m.ffn = ffn;
  m.vocab = vocab;
  m.max_positions = max_positions;
  m.tied = tied;
  m.parameters = CountParameters(m);
  return m;
}

int64_t RoundTo(double value, int64_t multiple) {
  return std::max(multiple, static_cast<int64_t>(std::llround(value / static_cast<double>(multiple))) * multiple);
}

// Width of a model of P parameters: between two published models by log-log interpolation, outside by P = 12 h^3 /
// (h/L) with the width-to-depth ratio of small (64) and of very large (128) models.
double Width(double parameters) {
  const auto& known = ReferenceShapes();
  if (parameters < static_cast<double>(known.front().parameters)) return std::cbrt(parameters * 64 / 12);
  if (parameters > static_cast<double>(known.back().parameters)) return std::cbrt(parameters * 128 / 12);
  size_t above = 1;
  while (static_cast<double>(known[above].parameters) < parameters) ++above;
  const ModelShape& lo = known[above - 1];
  const ModelShape& hi = known[above];
  const double t = (std::log(parameters) - std::log(static_cast<double>(lo.parameters))) /
                   (std::log(static_cast<double>(hi.parameters)) - std::log(static_cast<double>(lo.parameters)));
  return std::exp(std::log(static_cast<double>(lo.hidden)) * (1 - t) + std::log(static_cast<double>(hi.hidden)) * t);
}

// A Llama-like shape of about P parameters: Llama 2 proportions below 8B, Llama 3 from there on, tied below 1B.
ModelShape Between(int64_t parameters) {
  const double p = static_cast<double>(parameters);
  const bool modern = p >= 8e9;
  ModelShape m;
  m.hidden = RoundTo(Width(p), p < 1e9 ? 64 : 128);
  m.heads = m.hidden / (m.hidden % 128 == 0 && m.hidden >= 1024 ? 128 : 64);
  m.kv_heads = modern && m.heads % 8 == 0 ? 8 : m.heads;
  m.ffn = RoundTo(static_cast<double>(m.hidden) * (modern ? 3.5 : 2.6875), 64);
  m.tied = p < 1e9;
  m.vocab = modern ? 128256 : 32000;
  // A vocabulary that would be most of the model is not what a model of that size has.
  if (static_cast<double>(m.vocab * m.hidden) > 0.5 * p) m.vocab = 256;
  m.max_positions = modern ? 8192 : 4096;
  const double blocks = (p - static_cast<double>(RootParameters(m))) / static_cast<double>(BlockParameters(m));
  m.layers = std::max<int64_t>(1, std::llround(blocks));
  return m;
}

}  // namespace

const std::vector<ModelShape>& ReferenceShapes() {
  static const std::vector<ModelShape> kShapes = {
      Llama("TinyLlama 1.1B", 22, 2048, 32, 4, 5632, 32000, 2048, false),
      Llama("Llama 3.2 3B", 28, 3072, 24, 8, 8192, 128256, 131072, true),
      Llama("Llama 2 7B", 32, 4096, 32, 32, 11008, 32000, 4096, false),
      Llama("Llama 3.1 8B", 32, 4096, 32, 8, 14336, 128256, 131072, false),
      Llama("Llama 2 13B", 40, 5120, 40, 40, 13824, 32000, 4096, false),
      Llama("Code Llama 34B", 48, 8192, 64, 8, 22016, 32000, 16384, false),
      Llama("Llama 3 70B", 80, 8192, 64, 8, 28672, 128256, 8192, false),
  };
  return kShapes;
}

Result<ModelShape> ShapeFromCount(int64_t parameters) {
  if (parameters < 1'000 || parameters > 100'000'000'000'000) {
    return Fail(ErrorCode::kInvalidArgument, "a model of " + std::to_string(parameters) +
                                                 " parameters cannot be planned: give between 1K and 100T, such as 7B");
  }
  const double p = static_cast<double>(parameters);
  auto distance = [&](const ModelShape& m) { return std::abs(std::log(p / static_cast<double>(m.parameters))); };
  const auto& known = ReferenceShapes();
  auto nearest = std::min_element(known.begin(), known.end(),
                                  [&](const ModelShape& a, const ModelShape& b) { return distance(a) < distance(b); });
  const bool listed = distance(*nearest) <= std::log(kSameSize);
  ModelShape shape = listed ? *nearest : Between(parameters);
  const std::string count = FormatCount(parameters);
  const std::string layout = std::to_string(shape.layers) + " layers, width " + std::to_string(shape.hidden) +
                             ", vocabulary " + std::to_string(shape.vocab);
  if (!listed) shape.name = "Llama-like " + count;
  shape.assumption = listed ? count + " taken as the shape of " + shape.name + " (" + layout + ")"
                            : count + " is no listed model: a Llama-like shape was interpolated (" + layout + ")";
  shape.parameters = parameters;
  return shape;
}

}  // namespace trainyard::sizing
