// Any text as a GPU catalogue, and any text as the name of a product.
#include <cmath>
#include <string_view>

#include "operator/sizing/gpu_catalogue.h"
#include "tests/fuzz/fuzz_target.h"

using trainyard::fuzz::Require;
using trainyard::fuzz::RequireOneLine;
using trainyard::fuzz::RequireUtf8;
using trainyard::sizing::Catalogue;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto catalogue = Catalogue::FromYaml(text, "gpus.yaml");
  if (!catalogue) {
    RequireOneLine(catalogue.error().message);
    RequireUtf8(catalogue.error().message);
  }
  const Catalogue& known = catalogue ? *catalogue : *Catalogue::Default();
  if (const auto product = known.Require(text); !product) RequireOneLine(product.error().message);
  if (!catalogue) return 0;
  Require(known.products().size() >= 2 && known.products().back().Simulated(), "the simulated product is always there");
  for (const auto& product : known.products()) {
    Require(known.Find(product.name) == &product, "every product is found by its name");
    for (const auto& alias : product.aliases) Require(known.Find(alias) == &product, "and by its aliases");
    if (product.Simulated()) continue;
    Require(product.memory_mib > 0 && product.MemoryBytes() > 0, "memory is positive");
    Require(std::isfinite(product.bf16_tflops) && product.bf16_tflops > 0, "arithmetic is positive");
    Require(product.mfu > 0 && product.mfu <= 1 && product.gpus_per_node > 0, "it can be planned with");
    Require(!product.price_per_hour || (std::isfinite(*product.price_per_hour) && *product.price_per_hour >= 0),
            "a price is a number");
    for (const auto& link : trainyard::sizing::LinksOf(product)) {
      Require(link.per_direction > 0 && link.both_directions == 2 * link.per_direction, "a link has both figures");
    }
  }
  return 0;
}
