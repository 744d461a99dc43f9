// Names: enum values as the API spells them, names of a job's children, and the rules that names keep.
// Thread-safety: pure functions.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "operator/api/training_job.h"
#include "operator/base/error.h"

namespace trainyard::api {

// EnumNames<E>::kAll lists the values of E with their spelling in the API, in the order of declaration.
template <typename E>
struct EnumNames;

#define TRAINYARD_ENUM_NAMES(E, N, ...)                                                 \
  template <>                                                                           \
  struct EnumNames<E> {                                                                 \
    static constexpr std::array<std::pair<E, std::string_view>, N> kAll{{__VA_ARGS__}}; \
  }

TRAINYARD_ENUM_NAMES(Family, 5, {Family::kLlama, "Llama"}, {Family::kMistral, "Mistral"}, {Family::kQwen2, "Qwen2"},
                     {Family::kQwen3, "Qwen3"}, {Family::kGpt2, "GPT2"});
TRAINYARD_ENUM_NAMES(AdapterType, 1, {AdapterType::kLora, "LoRA"});
TRAINYARD_ENUM_NAMES(QuantizeBase, 2, {QuantizeBase::kNone, "None"}, {QuantizeBase::kNf4, "NF4"});
TRAINYARD_ENUM_NAMES(DataFormat, 2, {DataFormat::kText, "Text"}, {DataFormat::kTokens, "Tokens"});
TRAINYARD_ENUM_NAMES(DeviceKind, 3, {DeviceKind::kAuto, "Auto"}, {DeviceKind::kCpu, "CPU"},
                     {DeviceKind::kCuda, "CUDA"});
TRAINYARD_ENUM_NAMES(Precision, 2, {Precision::kBf16, "BF16"}, {Precision::kFp32, "FP32"});
TRAINYARD_ENUM_NAMES(OptimizerKind, 4, {OptimizerKind::kAdamW, "AdamW"}, {OptimizerKind::kAdamW8bit, "AdamW8bit"},
                     {OptimizerKind::kAdafactor, "Adafactor"}, {OptimizerKind::kSgd, "SGD"});
TRAINYARD_ENUM_NAMES(ScheduleType, 4, {ScheduleType::kCosine, "Cosine"}, {ScheduleType::kLinear, "Linear"},
                     {ScheduleType::kConstant, "Constant"}, {ScheduleType::kWarmupStableDecay, "WarmupStableDecay"});
TRAINYARD_ENUM_NAMES(DecayShape, 3, {DecayShape::kLinear, "Linear"}, {DecayShape::kCosine, "Cosine"},
                     {DecayShape::kSqrt, "Sqrt"});
TRAINYARD_ENUM_NAMES(ActivationCheckpointing, 4, {ActivationCheckpointing::kAuto, "Auto"},
                     {ActivationCheckpointing::kNone, "None"}, {ActivationCheckpointing::kSelective, "Selective"},
                     {ActivationCheckpointing::kFull, "Full"});
TRAINYARD_ENUM_NAMES(NonFiniteLoss, 2, {NonFiniteLoss::kStop, "Stop"}, {NonFiniteLoss::kSkipStep, "SkipStep"});
TRAINYARD_ENUM_NAMES(Determinism, 3, {Determinism::kNone, "None"}, {Determinism::kLayout, "Layout"},
                     {Determinism::kWorldSize, "WorldSize"});
TRAINYARD_ENUM_NAMES(Strategy, 6, {Strategy::kAuto, "Auto"}, {Strategy::kDdp, "DDP"}, {Strategy::kZero1, "ZeRO1"},
                     {Strategy::kZero2, "ZeRO2"}, {Strategy::kFsdp, "FSDP"}, {Strategy::kHsdp, "HSDP"});
TRAINYARD_ENUM_NAMES(OffloadTo, 3, {OffloadTo::kNone, "None"}, {OffloadTo::kCpu, "CPU"}, {OffloadTo::kNvme, "NVMe"});
TRAINYARD_ENUM_NAMES(NvLink, 3, {NvLink::kRequired, "Required"}, {NvLink::kPreferred, "Preferred"},
                     {NvLink::kAny, "Any"});
TRAINYARD_ENUM_NAMES(TopologyMode, 2, {TopologyMode::kRequired, "Required"}, {TopologyMode::kPreferred, "Preferred"});
TRAINYARD_ENUM_NAMES(Goal, 2, {Goal::kCheapest, "Cheapest"}, {Goal::kFastest, "Fastest"});
TRAINYARD_ENUM_NAMES(Resume, 3, {Resume::kLatest, "Latest"}, {Resume::kNever, "Never"}, {Resume::kStep, "Step"});
TRAINYARD_ENUM_NAMES(OnDelete, 2, {OnDelete::kRetain, "Retain"}, {OnDelete::kDelete, "Delete"});
TRAINYARD_ENUM_NAMES(Phase, 10, {Phase::kPending, "Pending"}, {Phase::kQueued, "Queued"}, {Phase::kPlacing, "Placing"},
                     {Phase::kStarting, "Starting"}, {Phase::kRunning, "Running"}, {Phase::kResizing, "Resizing"},
                     {Phase::kRecovering, "Recovering"}, {Phase::kSuspended, "Suspended"},
                     {Phase::kSucceeded, "Succeeded"}, {Phase::kFailed, "Failed"});
#undef TRAINYARD_ENUM_NAMES

template <typename E>
concept NamedEnum = requires { EnumNames<E>::kAll; };

// The spelling in the API: ToString(Strategy::kZero1) is "ZeRO1".
template <NamedEnum E>
constexpr std::string_view ToString(E value) {
  for (const auto& [known, name] : EnumNames<E>::kAll) {
    if (known == value) return name;
  }
  return "Unknown";
}

// The reverse: FromString<Strategy>("ZeRO1"). Spelling counts, case included.
template <NamedEnum E>
constexpr std::optional<E> FromString(std::string_view text) {
  for (const auto& [value, name] : EnumNames<E>::kAll) {
    if (name == text) return value;
  }
  return std::nullopt;
}

// All spellings, in the order of declaration.
template <NamedEnum E>
std::vector<std::string_view> AllNames() {
  std::vector<std::string_view> names;
  for (const auto& [value, name] : EnumNames<E>::kAll) names.push_back(name);
  return names;
}

// FromString for people: case does not count, the error lists what is known. Error: kInvalidArgument.
Result<Strategy> ParseStrategy(std::string_view text);

inline bool IsTerminal(Phase phase) { return phase == Phase::kSucceeded || phase == Phase::kFailed; }

// Children of a job: "<job>-<4 hex of its UID>-<attempt>-<node rank>" and "tj-<job>".
std::string PodName(const TrainingJob& job, int64_t attempt, int64_t node_rank);
std::string ServiceName(const TrainingJob& job);
// The same from the parts.
std::string PodName(std::string_view job_name, std::string_view job_uid, int64_t attempt, int64_t node_rank);
std::string ServiceName(std::string_view job_name);

// A DNS label (RFC 1123): 1 to `max_length` lower-case letters, digits and '-', not at either end.
bool IsDnsLabel(std::string_view text, size_t max_length = 63);

// A DNS subdomain (RFC 1123): labels joined by '.', at most 253 characters.
bool IsDnsSubdomain(std::string_view text);
// What keys of labels, annotations and taints, and names of resources, are: a name of at most 63 letters, digits, '-',
// '_' and '.', not with a sign at either end, alone or after a DNS subdomain and '/'.
bool IsQualifiedName(std::string_view text);
// Such a name without a domain, or nothing.
bool IsLabelValue(std::string_view text);

// The candidate nearest to `word` by edit distance, if it is near enough to be meant; case alone always is.
std::optional<std::string> NearestName(std::string_view word, const std::vector<std::string_view>& candidates);
// "did you mean 'layers'?" or "known are a, b, c"; for error messages.
std::string Suggest(std::string_view word, const std::vector<std::string_view>& candidates);
// Text of the user for a message: cut short, control characters replaced, so that it stays one line.
std::string Printable(std::string_view text);

}  // namespace trainyard::api
