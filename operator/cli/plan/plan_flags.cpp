#include "operator/cli/plan/plan_flags.h"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "operator/api/defaults.h"
#include "operator/api/json.h"
#include "operator/api/names.h"
#include "operator/api/validation.h"
#include "operator/api/yaml.h"
#include "operator/base/quantity.h"
#include "operator/sizing/gpu_catalogue.h"

namespace trainyard::cli {
namespace {

constexpr std::uintmax_t kMostBytes = 16 << 20;  // no job and no config.json is larger

tl::unexpected<Error> Bad(const std::string& what) { return Fail(ErrorCode::kInvalidArgument, what); }

Result<std::string> ReadFile(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return Fail(ErrorCode::kNotFound, path.string() + ": no such file");
  if (!std::filesystem::is_regular_file(path, error)) return Bad(path.string() + ": not a file");
  if (std::filesystem::file_size(path, error) > kMostBytes) return Bad(path.string() + ": larger than 16 MiB");
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) return Fail(ErrorCode::kUnavailable, path.string() + ": cannot be read");
  return text.str();
}

Result<sizing::ModelShape> ShapeFromConfigFile(std::filesystem::path path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) path /= "config.json";
  auto text = ReadFile(path);
  if (!text) return Fail(text.error());
  auto config = nlohmann::json::parse(*text, nullptr, false);
  if (config.is_discarded()) return Bad(path.string() + ": not JSON");
  auto shape = sizing::ShapeFromConfigJson(config);
  if (!shape) return Fail(shape.error().Wrap(path.parent_path().empty() ? "." : path.parent_path().string()));
  return shape;
}

Result<api::TrainingJob> ReadJobFile(const std::string& path) {
  auto text = ReadFile(path);
  if (!text) return Fail(text.error());
  auto documents = api::LoadYaml(*text, path);
  if (!documents) return Fail(documents.error());
  for (const nlohmann::json& document : *documents) {
    if (!document.is_object() || document.value("kind", nlohmann::json()) != api::kKind) continue;
    auto job = api::JobFromJson(document);
    if (!job) return Fail(job.error().Wrap(path));
    api::ApplyDefaults(*job);
    std::string problems;
    for (const std::string& problem : api::Validate(*job)) {
      problems += (problems.empty() ? "" : "\n") + path + ": " + problem;
    }
    if (!problems.empty()) return Bad(problems);
    return job;
  }
  return Bad(path + ": holds no TrainingJob");
}

// What a job says; flags are laid over it afterwards.
Status ApplyJob(const std::string& path, sizing::PlanRequest& request) {
  auto job = ReadJobFile(path);
  if (!job) return Fail(job.error());
  auto shape = sizing::ShapeOf(*job);
  if (!shape) return Fail(shape.error().Wrap(path));
  const api::Training& training = job->spec.training;
  const api::Gpus& gpus = job->spec.gpus;
  request.shape = *shape;
  request.sequence_length = training.sequence_length;
  request.micro_batch = training.micro_batch_size;
  request.global_batch = training.global_batch_size;
  request.precision = training.precision;
  request.strategy = job->spec.parallelism.strategy;
  request.per_node = gpus.per_node;
  if (gpus.count > 0) request.counts = {gpus.count};
  for (const std::string& product : gpus.products) request.supply.push_back({.product = product});
  if (gpus.products.empty() && training.device == api::DeviceKind::kCpu) {
    request.supply.push_back({.product = sizing::kSimulatedProduct});
  }
  request.tokens = static_cast<double>(training.steps) * static_cast<double>(training.global_batch_size) *
                   static_cast<double>(training.sequence_length);
  // Our trainer keeps every activation; a user's own program may recompute them.
  request.bundled_trainer = job->spec.UsesBundledTrainer();
  if (request.bundled_trainer) request.checkpointing = {sizing::Checkpointing::kNone};
  return {};
}

Status ApplyShape(const PlanFlags& flags, sizing::PlanRequest& request) {
  const int given = !flags.model.empty() + !flags.config.empty() + !flags.job.empty();
  if (given != 1) {
    return Bad(given == 0 ? "give --model 7B, --config config.json or --job job.yaml"
                          : "give only one of --model, --config and --job");
  }
  if (!flags.job.empty()) return ApplyJob(flags.job, request);
  Result<sizing::ModelShape> shape;
  if (!flags.config.empty()) {
    shape = ShapeFromConfigFile(flags.config);
    if (!shape) return Fail(shape.error());
  } else {
    auto count = ParseCount(flags.model);
    if (!count) return Fail(count.error().Wrap("--model"));
    shape = sizing::ShapeFromCount(*count);
    if (!shape) return Fail(shape.error().Wrap("--model"));
  }
  request.shape = *shape;
  return {};
}

// "255" or "H100-SXM=255".
Status ApplyPrice(const std::string& text, sizing::PlanRequest& request) {
  const size_t equals = text.rfind('=');
  const std::string product = equals == std::string::npos ? "" : text.substr(0, equals);
  const std::string number = equals == std::string::npos ? text : text.substr(equals + 1);
  double price = 0;
  auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), price);
  if (number.empty() || error != std::errc() || end != number.data() + number.size()) {
    return Bad("--price: '" + text + "' is not a price such as 255 or H100-SXM=255");
  }
  if (equals == 0) return Bad("--price: '" + text + "' names no product before '='");
  request.prices[product] = price;
  return {};
}

}  // namespace

Result<sizing::PlanRequest> RequestFrom(const PlanFlags& flags) {
  sizing::PlanRequest request;
  if (auto ok = ApplyShape(flags, request); !ok) return Fail(ok.error());
  if (!flags.products.empty()) {
    request.supply.clear();
    for (const std::string& product : flags.products) {
      auto known = sizing::RequireProduct(product);
      if (!known) return Fail(known.error().Wrap("--product"));
      request.supply.push_back({.product = (*known)->name});
    }
  }
  if (!flags.counts.empty()) request.counts = flags.counts;
  if (flags.per_node) {
    if (*flags.per_node < 1) return Bad("--per-node: " + std::to_string(*flags.per_node) + " is not at least 1");
    request.per_node = *flags.per_node;
  }
  if (!flags.strategy.empty()) {
    auto strategy = api::ParseStrategy(flags.strategy);
    if (!strategy) return Fail(strategy.error().Wrap("--strategy"));
    request.strategy = *strategy;
  }
  if (!flags.precision.empty()) {
    auto precision = api::FromString<api::Precision>(flags.precision);
    if (!precision) return Bad("--precision: '" + flags.precision + "' is neither BF16 nor FP32");
    request.precision = *precision;
  }
  if (flags.sequence_length) request.sequence_length = *flags.sequence_length;
  if (flags.micro_batch) request.micro_batch = *flags.micro_batch;
  if (flags.global_batch) request.global_batch = *flags.global_batch;
  if (flags.single_gpu_hours) request.single_gpu_hours = flags.single_gpu_hours;
  if (!flags.tokens.empty()) {
    auto tokens = ParseCount(flags.tokens);
    if (!tokens) return Bad("--tokens: '" + flags.tokens + "' is not a number of tokens such as 300B or 1T");
    request.tokens = static_cast<double>(*tokens);
  }
  for (const std::string& price : flags.prices) {
    if (auto ok = ApplyPrice(price, request); !ok) return Fail(ok.error());
  }
  if (!request.prices.empty() && !request.single_gpu_hours && !request.tokens) {
    return Bad("--price gives a cost only together with --single-gpu-hours or --tokens");
  }
  request.round_hours = flags.round_hours;
  return request;
}

}  // namespace trainyard::cli
