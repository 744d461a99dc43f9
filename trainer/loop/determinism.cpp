#include "trainer/loop/determinism.h"

#include <cstdlib>
#include <map>
#include <string>

#include <ATen/Context.h>
#include <ATen/Version.h>
#include <torch/version.h>
#include <nlohmann/json.hpp>

#include "trainer/loop/exchange.h"
#include "trainer/observe/log.h"

namespace trainyard::loop {
namespace {

using config::Determinism;

const char* NameOf(Determinism determinism) {
  switch (determinism) {
    case Determinism::kNone:
      return "None";
    case Determinism::kLayout:
      return "Layout";
    case Determinism::kWorldSize:
      return "WorldSize";
  }
  return "None";
}

// "CPU AVX2": the set of kernels that LibTorch has chosen on this machine.
std::string Kernels(const Session& s) { return std::string(s.device->name()) + " " + at::get_cpu_capability(); }

}  // namespace

void ChooseKernels(Determinism determinism) {
  if (determinism == Determinism::kNone) return;
  // Both are read when the library is first used. What is set from outside stays.
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
  // A parameter begins at any multiple of its type's size where it is a part of a larger buffer, and products of few
  // rows or columns are rounded by where their operands begin, unless MKL is told otherwise.
  setenv("MKL_CBWR", "AUTO,STRICT", 0);
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(
      false);  // a debugging aid: nothing here reads what it has not written
  context.setBenchmarkCuDNN(false);
}

void CompareKernels(Session& s) {
  if (s.job.training.determinism == Determinism::kNone) return;
  const auto all = GatherTexts(*s.world, Kernels(s), "kernels");
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    observe::Warn(c10::str("rank ", rank, " computes with the kernels ", all[rank], ", rank 0 with ", all[0],
                           ": results depend on which rank runs what; use machines of one kind"));
    return;
  }
}

nlohmann::ordered_json DeterminismState(const Session& s) {
  const config::Training& training = s.job.training;
  nlohmann::ordered_json state = {{"mode", NameOf(training.determinism)},
                                  {"microBatchSize", training.micro_batch_size},
                                  {"threads", s.threads},
                                  {"kernels", Kernels(s)},
                                  {"libtorch", TORCH_VERSION}};
  if (training.determinism == Determinism::kWorldSize) state["gradientShifts"] = s.engine->ExactShifts();
  return state;
}

Outcome<void> TakeDeterminism(Session& s, const nlohmann::json& train_state) {
  if (s.job.training.determinism != Determinism::kWorldSize) return {};
  const nlohmann::json saved = train_state.value("determinism", nlohmann::json::object());
  try {
    if (saved.value("mode", "None") != NameOf(Determinism::kWorldSize)) {
      if (s.env.rank == 0) {
        observe::Info(
            "the checkpoint was made without training.determinism WorldSize: from here on the world size does "
            "not matter");
      }
      s.engine->SetExactShifts({});
      return {};
    }
    const nlohmann::ordered_json own = DeterminismState(s);
    for (const char* key : {"microBatchSize", "threads"}) {
      if (saved.at(key) == own.at(key)) continue;
      return Fails(contract::kExitConfiguration,
                   std::string("it was made with training.") + key + " " + saved.at(key).dump() + ", the job says " +
                       own.at(key).dump() +
                       ": with training.determinism WorldSize results would not be the same; set it back, or "
                       "determinism to Layout");
    }
    for (const char* key : {"kernels", "libtorch"}) {
      if (saved.at(key) == own.at(key) || s.env.rank != 0) continue;
      observe::Warn(c10::str("the checkpoint was made with ", key, " ", saved.at(key).dump(), ", here it is ",
                             own.at(key).dump(), ": results may differ from those of before in the last bits"));
    }
    s.engine->SetExactShifts(saved.at("gradientShifts").get<std::map<std::string, int>>());
  } catch (const nlohmann::json::exception& bad) {
    return Fails(contract::kExitCheckpoint, std::string("determinism in train_state.json is not ours: ") + bad.what());
  }
  return {};
}

}  // namespace trainyard::loop
