#include "operator/sizing/memory_names.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <utility>

namespace trainyard::sizing {
namespace {

template <typename E>
struct Named {
  E value;
  std::string_view name;
};
constexpr Named<Optimizer> kOptimizers[] = {{Optimizer::kAdamW, "AdamW"},
                                            {Optimizer::kAdamW8bit, "AdamW8bit"},
                                            {Optimizer::kAdafactor, "Adafactor"},
                                            {Optimizer::kSgd, "SGD"}};
constexpr Named<AdapterType> kAdapters[] = {
    {AdapterType::kNone, "None"}, {AdapterType::kLora, "LoRA"}, {AdapterType::kQLora, "QLoRA"}};
constexpr Named<Offload> kOffloads[] = {{Offload::kNone, "None"}, {Offload::kCpu, "CPU"}, {Offload::kNvme, "NVMe"}};
constexpr Named<Checkpointing> kCheckpointings[] = {
    {Checkpointing::kNone, "None"}, {Checkpointing::kSelective, "Selective"}, {Checkpointing::kFull, "Full"}};

bool SameIgnoringCase(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

template <typename E, size_t n>
std::string_view NameOf(const Named<E> (&names)[n], E value) {
  for (const auto& named : names) {
    if (named.value == value) return named.name;
  }
  return "?";
}

template <typename E, size_t n>
Result<E> Parse(const Named<E> (&names)[n], std::string_view what, std::string_view text) {
  std::string known;
  for (const auto& named : names) {
    if (SameIgnoringCase(named.name, text)) return named.value;
    known += (known.empty() ? "" : ", ") + std::string(named.name);
  }
  return Fail(ErrorCode::kInvalidArgument,
              "'" + std::string(text) + "' is no " + std::string(what) + "; there are " + known);
}

}  // namespace

std::string_view ToString(Optimizer optimizer) { return NameOf(kOptimizers, optimizer); }
std::string_view ToString(AdapterType type) { return NameOf(kAdapters, type); }
std::string_view ToString(Offload offload) { return NameOf(kOffloads, offload); }
std::string_view ToString(Checkpointing checkpointing) { return NameOf(kCheckpointings, checkpointing); }

Result<Optimizer> ParseOptimizer(std::string_view name) { return Parse(kOptimizers, "optimizer", name); }
Result<AdapterType> ParseAdapterType(std::string_view name) { return Parse(kAdapters, "adapter", name); }
Result<Offload> ParseOffload(std::string_view name) { return Parse(kOffloads, "offload", name); }
Result<Checkpointing> ParseCheckpointing(std::string_view name) {
  return Parse(kCheckpointings, "activation checkpointing", name);
}

}  // namespace trainyard::sizing
