#include "operator/cli/plan/plan_flags.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "operator/api/names.h"
#include "operator/base/quantity.h"
#include "operator/cli/plan/input_files.h"
#include "operator/cli/volume_path.h"
#include "operator/sizing/memory_tensors.h"

namespace trainyard::cli {
namespace {

using sizing::PlanRequest;

constexpr int64_t kMostGpus = 1 << 20;  // no count beyond it is meant

tl::unexpected<Error> Bad(const std::string& what) { return Fail(ErrorCode::kInvalidArgument, what); }
tl::unexpected<Error> Bad(const std::string& flag, const std::string& value, const std::string& right) {
  return Bad(flag + ": '" + api::Printable(value) + "' is not " + right);
}

// The whole of `text` as a number of its type.
template <typename T>
std::optional<T> NumberIn(std::string_view text) {
  T value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// A whole number of at least `least`, if the flag was given.
Status SetWhole(const std::string& flag, const std::string& text, int64_t least, int64_t& target) {
  if (text.empty()) return {};
  const auto value = NumberIn<int64_t>(text);
  if (!value || *value < least) return Bad(flag, text, "a whole number of at least " + std::to_string(least));
  target = *value;
  return {};
}

// A finite number above zero, if the flag was given.
Status SetPositive(const std::string& flag, const std::string& text, const std::string& what,
                   std::optional<double>& target) {
  if (text.empty()) return {};
  const auto value = NumberIn<double>(text);
  if (!value || !std::isfinite(*value) || *value <= 0) return Bad(flag, text, what);
  target = *value;
  return {};
}

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// One of a few names, case aside, if the flag was given.
template <typename T>
Status SetChoice(const std::string& flag, const std::string& text, const std::vector<std::pair<std::string, T>>& known,
                 T& target) {
  if (text.empty()) return {};
  std::string names;
  for (size_t i = 0; i < known.size(); ++i) {
    if (Lower(known[i].first) == Lower(text)) {
      target = known[i].second;
      return {};
    }
    names += (i == 0 ? "" : i + 1 == known.size() ? " or " : ", ") + known[i].first;
  }
  return Bad(flag + ": '" + api::Printable(text) + "' is not known; give " + names);
}

// "8", or "1-8": of a range the counts that divide a server of 8 evenly, then whole servers, and both ends.
Status AddCounts(const std::string& text, std::vector<int64_t>& counts) {
  const std::string right = "a GPU count such as 4, a list such as 2,4,8 or a range such as 1-8";
  const size_t dash = text.find('-', 1);
  const auto first = NumberIn<int64_t>(std::string_view(text).substr(0, dash));
  const auto last = dash == std::string::npos ? first : NumberIn<int64_t>(std::string_view(text).substr(dash + 1));
  if (!first || !last || *first < 1 || *last < *first || *last > kMostGpus) return Bad("--count", text, right);
  counts.push_back(*first);
  for (int64_t count : sizing::ProposedCounts(8, *last)) {
    if (count > *first) counts.push_back(count);
  }
  counts.push_back(*last);
  return {};
}

// Flags that are repeatable, and whose value may be a list: "2,4" is 2 and 4. An item that is empty is a slip of the
// hand, and nobody knows what should stand there.
Status SplitLists(PlanFlags& flags) {
  const std::pair<const char*, std::vector<std::string>*> lists[] = {{"--product", &flags.products},
                                                                     {"--count", &flags.counts},
                                                                     {"--offload", &flags.offloads},
                                                                     {"--price", &flags.prices},
                                                                     {"--adapter-targets", &flags.adapter_targets}};
  for (const auto& [flag, values] : lists) {
    std::vector<std::string> items;
    for (const std::string& value : *values) {
      for (size_t start = 0; start <= value.size();) {
        const size_t end = std::min(value.find(',', start), value.size());
        if (end == start) return Bad(std::string(flag) + ": '" + api::Printable(value) + "' has an empty item");
        items.push_back(value.substr(start, end - start));
        start = end + 1;
      }
    }
    *values = std::move(items);
  }
  return {};
}

Status ApplyCounts(const std::vector<std::string>& given, PlanRequest& request) {
  if (given.empty()) return {};
  std::vector<int64_t> counts;
  for (const std::string& text : given) {
    if (auto ok = AddCounts(text, counts); !ok) return ok;
  }
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  request.counts = std::move(counts);
  return {};
}

// What a job says; flags are laid over it afterwards.
Status ApplyJob(const std::string& path, PlanInput& input) {
  auto job = ReadJobFile(path);
  if (!job) return Fail(job.error());
  PlanRequest& request = input.request;
  auto shape = sizing::ShapeOf(*job);
  if (!shape) return Fail(shape.error().Wrap(path));
  request = sizing::RequestOf(*job, std::move(*shape), request.catalogue);
  const api::Gpus& gpus = job->spec.gpus;
  for (const std::string& product : gpus.products) request.supply.push_back({.product = product});
  if (gpus.products.empty() && job->spec.training.device == api::DeviceKind::kCpu) {
    request.supply.push_back({.product = sizing::kSimulatedProduct});
  }
  input.job = std::move(*job);
  return {};
}

// VOLUME:PATH of the directory that --config describes, for a job of the bundled trainer that starts from it.
Status ApplyPretrained(const PlanFlags& flags, PlanInput& input) {
  if (flags.pretrained.empty()) return {};
  auto place = ParseVolumePath(flags.pretrained);
  if (!place) return Bad("--pretrained: " + place.error().message);
  if (!input.request.shape.family) {
    return Bad("--pretrained: the bundled trainer does not train " + input.request.shape.name);
  }
  input.pretrained = *std::move(place);
  input.request.bundled_trainer = true;
  input.request.checkpointing = {sizing::Checkpointing::kNone, sizing::Checkpointing::kSelective,
                                 sizing::Checkpointing::kFull};
  return {};
}

Status ApplyModel(const PlanFlags& flags, PlanInput& input) {
  const int given = !flags.model.empty() + !flags.config.empty() + !flags.job.empty();
  if (given != 1) {
    return Bad(given == 0 ? "give --model 7B, --config DIRECTORY or --job job.yaml"
                          : "give only one of --model, --config and --job");
  }
  if (!flags.pretrained.empty() && flags.config.empty()) {
    return Bad("--pretrained needs --config, which says what the model is");
  }
  if (!flags.job.empty()) return ApplyJob(flags.job, input);
  Result<sizing::ModelShape> shape;
  if (!flags.config.empty()) {
    shape = ShapeFromConfigFile(flags.config);
    if (!shape) return Fail(shape.error());
    input.shape_from_config = true;
  } else {
    auto count = ParseCount(flags.model);
    if (!count) return Fail(count.error().Wrap("--model"));
    shape = sizing::ShapeFromCount(*count);
    if (!shape) return Fail(shape.error().Wrap("--model"));
  }
  input.request.shape = *shape;
  return ApplyPretrained(flags, input);
}

Status ApplyProducts(const std::vector<std::string>& products, PlanRequest& request) {
  if (products.empty()) return {};
  request.supply.clear();
  for (const std::string& product : products) {
    auto known = request.catalogue->Require(product);
    if (!known) return Fail(known.error().Wrap("--product"));
    request.supply.push_back({.product = (*known)->name});
  }
  return {};
}

// The momentum of a job's SGD goes with that optimizer.
Status SetMomentum(const std::string& text, PlanRequest& request) {
  if (request.optimizer != sizing::Optimizer::kSgd) {
    request.momentum = 0;
    return text.empty() ? Status() : Bad("--momentum needs --optimizer SGD");
  }
  if (text.empty()) return {};
  const auto value = NumberIn<double>(text);
  if (!value || !(*value >= 0 && *value < 1)) return Bad("--momentum", text, "a number from 0 to below 1");
  request.momentum = *value;
  return {};
}

Status ApplyMethod(const PlanFlags& flags, PlanRequest& request) {
  using sizing::AdapterType;
  using sizing::Offload;
  using sizing::Optimizer;
  if (!flags.strategy.empty()) {
    auto strategy = api::ParseStrategy(flags.strategy);
    if (!strategy) return Fail(strategy.error().Wrap("--strategy"));
    request.strategy = *strategy;
  }
  auto ok =
      SetChoice<api::Precision>("--precision", flags.precision,
                                {{"BF16", api::Precision::kBf16}, {"FP32", api::Precision::kFp32}}, request.precision);
  if (!ok) return ok;
  ok = SetChoice<Optimizer>("--optimizer", flags.optimizer,
                            {{"AdamW", Optimizer::kAdamW},
                             {"AdamW8bit", Optimizer::kAdamW8bit},
                             {"Adafactor", Optimizer::kAdafactor},
                             {"SGD", Optimizer::kSgd}},
                            request.optimizer);
  if (!ok) return ok;
  if (ok = SetMomentum(flags.momentum, request); !ok) return ok;
  ok = SetChoice<AdapterType>(
      "--adapter", flags.adapter,
      {{"None", AdapterType::kNone}, {"LoRA", AdapterType::kLora}, {"QLoRA", AdapterType::kQLora}},
      request.adapter.type);
  if (!ok) return ok;
  if (!flags.adapter_rank.empty() && request.adapter.type == AdapterType::kNone) {
    return Bad("--adapter-rank needs --adapter LoRA or --adapter QLoRA");
  }
  if (ok = SetWhole("--adapter-rank", flags.adapter_rank, 1, request.adapter.rank); !ok) return ok;
  if (!flags.adapter_targets.empty()) {
    if (request.adapter.type == AdapterType::kNone) {
      return Bad("--adapter-targets needs --adapter LoRA or --adapter QLoRA");
    }
    if (ok = sizing::CheckTargets(request.shape, flags.adapter_targets); !ok) {
      return Fail(ok.error().Wrap("--adapter-targets"));
    }
    request.adapter.targets = flags.adapter_targets;
  }
  if (!flags.offloads.empty()) request.offloads.clear();
  for (const std::string& text : flags.offloads) {
    Offload offload = Offload::kNone;
    ok = SetChoice<Offload>("--offload", text,
                            {{"None", Offload::kNone}, {"CPU", Offload::kCpu}, {"NVMe", Offload::kNvme}}, offload);
    if (!ok) return ok;
    request.offloads.push_back(offload);
  }
  if (ok = SetWhole("--tensor-parallel", flags.tensor_parallel, 1, request.tensor_parallel); !ok) return ok;
  if (ok = SetWhole("--pipeline-parallel", flags.pipeline_parallel, 1, request.pipeline_parallel); !ok) return ok;
  if (flags.no_flash_attention) request.flash_attention = false;
  return {};
}

// "255" or "H100-SXM=255". Zero is a price too: of machines that are there anyway.
Status ApplyPrice(const std::string& text, PlanRequest& request) {
  const size_t equals = text.rfind('=');
  std::string product = equals == std::string::npos ? "" : text.substr(0, equals);
  const auto price = NumberIn<double>(equals == std::string::npos ? text : text.substr(equals + 1));
  if (!price || !std::isfinite(*price) || *price < 0) {
    return Bad("--price", text, "a price per GPU-hour such as 2.95 or H100-SXM=2.95");
  }
  if (equals == 0) return Bad("--price: '" + text + "' names no product before '='");
  if (!product.empty()) {
    auto known = request.catalogue->Require(product);
    if (!known) return Fail(known.error().Wrap("--price"));
    product = (*known)->name;
  }
  request.prices[product] = *price;
  return {};
}

// After sequence and batch: a number of steps, the file's too, is of the steps that the flags make.
Status ApplyTokens(const PlanFlags& flags, PlanInput& input) {
  PlanRequest& request = input.request;
  if (!flags.tokens.empty() && !flags.steps.empty()) return Bad("give only one of --tokens and --steps");
  if (!flags.tokens.empty()) {
    auto tokens = ParseCount(flags.tokens);
    if (!tokens || *tokens < 1) return Bad("--tokens", flags.tokens, "a number of tokens such as 300B or 1T");
    request.tokens = static_cast<double>(*tokens);
    return {};
  }
  std::optional<int64_t> steps;
  if (input.job) steps = input.job->spec.training.steps;
  if (!flags.steps.empty()) {
    auto given = ParseCount(flags.steps);
    if (!given || *given < 1) return Bad("--steps", flags.steps, "a number of optimizer steps such as 10000");
    steps = *given;
  }
  if (steps) {
    request.tokens = static_cast<double>(*steps) * static_cast<double>(request.global_batch) *
                     static_cast<double>(request.sequence_length);
  }
  return {};
}

Status ApplyGoal(const PlanFlags& flags, PlanRequest& request) {
  auto ok = SetChoice<api::Goal>("--goal", flags.goal,
                                 {{"Cheapest", api::Goal::kCheapest}, {"Fastest", api::Goal::kFastest}}, request.goal);
  if (!ok) return ok;
  ok = SetPositive("--single-gpu-hours", flags.single_gpu_hours, "a number of hours above 0", request.single_gpu_hours);
  if (!ok) return ok;
  ok = SetPositive("--max-hours", flags.max_hours, "a number of hours above 0", request.max_hours);
  if (!ok) return ok;
  ok = SetPositive("--max-cost", flags.max_cost, "an amount above 0", request.max_cost);
  if (!ok) return ok;
  const bool times = request.single_gpu_hours || request.tokens;
  for (const std::string& price : flags.prices) {
    if (ok = ApplyPrice(price, request); !ok) return ok;
  }
  if (!times && !request.prices.empty()) {
    return Bad("--price gives a cost only together with --single-gpu-hours, --tokens or --steps");
  }
  if (!times && request.max_hours) return Bad("--max-hours needs --single-gpu-hours, --tokens or --steps");
  if (!times && request.max_cost) return Bad("--max-cost needs --single-gpu-hours, --tokens or --steps, and --price");
  return {};
}

}  // namespace

Result<std::shared_ptr<const sizing::Catalogue>> CatalogueFrom(const PlanFlags& flags) {
  if (flags.catalogue.empty()) return sizing::Catalogue::Default();
  return ReadCatalogueFile(flags.catalogue);
}

Result<PlanInput> InputFrom(const PlanFlags& given) {
  PlanFlags flags = given;
  if (auto ok = SplitLists(flags); !ok) return Fail(ok.error());
  PlanInput input;
  PlanRequest& request = input.request;
  auto catalogue = CatalogueFrom(flags);
  if (!catalogue) return Fail(catalogue.error());
  request.catalogue = *catalogue;
  if (auto ok = ApplyModel(flags, input); !ok) return Fail(ok.error());
  if (auto ok = ApplyProducts(flags.products, request); !ok) return Fail(ok.error());
  if (auto ok = ApplyCounts(flags.counts, request); !ok) return Fail(ok.error());
  if (auto ok = SetWhole("--per-node", flags.per_node, 1, request.per_node); !ok) return Fail(ok.error());
  if (auto ok = ApplyMethod(flags, request); !ok) return Fail(ok.error());
  if (auto ok = SetWhole("--sequence", flags.sequence, 1, request.sequence_length); !ok) return Fail(ok.error());
  if (auto ok = SetWhole("--micro-batch", flags.micro_batch, 0, request.micro_batch); !ok) return Fail(ok.error());
  if (auto ok = SetWhole("--batch", flags.global_batch, 1, request.global_batch); !ok) return Fail(ok.error());
  if (auto ok = ApplyTokens(flags, input); !ok) return Fail(ok.error());
  if (auto ok = ApplyGoal(flags, request); !ok) return Fail(ok.error());
  request.round_hours = flags.round_hours;
  input.currency = flags.currency.empty() ? request.catalogue->currency() : flags.currency;
  return input;
}

}  // namespace trainyard::cli
