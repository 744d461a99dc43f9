// Any text as what nvidia-smi topo -m printed, as islands of the annotation, and as the flag --topology.
#include <string_view>

#include "operator/placement/gpu_links.h"
#include "operator/placement/topo_matrix.h"
#include "operator/placement/topology.h"
#include "tests/fuzz/fuzz_target.h"

using trainyard::fuzz::Require;
using trainyard::fuzz::RequireOneLine;
using trainyard::fuzz::RequireUtf8;
using namespace trainyard::placement;

namespace {

bool IsUtf8(std::string_view text) {
  try {
    nlohmann::json(std::string(text)).dump();
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

// A file may be anything; an annotation or a flag is UTF-8, and what is said of it stands in JSON.
void RequireGood(std::string_view text, const std::string& message) {
  RequireOneLine(message);
  if (IsUtf8(text)) RequireUtf8(message);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto matrix = ParseTopoMatrix(text)) {
    const size_t gpus = matrix->gpus.size();
    Require(gpus > 0, "a matrix has GPUs");
    for (size_t i = 0; i < gpus; ++i) {
      Require(matrix->gpus[i].size() == gpus, "it is square");
      for (size_t j = 0; j < gpus; ++j) Require(matrix->gpus[i][j] == matrix->gpus[j][i], "and symmetric");
    }
    for (const TopoNic& nic : matrix->nics)
      Require(nic.gpus.size() == gpus, "an adapter is at some distance of each GPU");
    const TopoFacts facts = Study(*matrix);
    size_t members = 0;
    for (const auto& island : facts.islands) members += island.size();
    Require(members == gpus && facts.worst.size() == facts.islands.size(), "every GPU is on one island");
    const auto again = ParseIslands(IslandsText(facts.islands));
    Require(again && *again == facts.islands, "islands survive their short form");
    for (const std::string& fault : facts.faults) RequireOneLine(fault);
  } else {
    RequireGood(text, matrix.error().message);
  }
  if (const auto islands = ParseIslands(text)) {
    const auto again = ParseIslands(IslandsText(*islands));
    Require(again && *again == *islands, "islands survive their short form");
  } else {
    RequireGood(text, islands.error().message);
  }
  if (const auto topology = Topology::Parse(text); !topology) {
    RequireGood(text, topology.error().message);
  }
  return 0;
}
