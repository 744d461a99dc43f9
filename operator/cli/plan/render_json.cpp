#include <cmath>
#include <optional>

#include "operator/api/names.h"
#include "operator/cli/plan/render.h"
#include "operator/cli/plan/words.h"

namespace trainyard::cli {
namespace {

using nlohmann::ordered_json;
using sizing::Plan;
using sizing::PlanOption;

// Without the dust of binary fractions: 0.9, not 0.8999999999999999.
double Tidy(double value) { return std::round(value * 1e6) / 1e6; }

ordered_json NumberOrNull(const std::optional<double>& value, bool whole = false) {
  if (!value || !std::isfinite(*value)) return nullptr;
  if (whole && *value == std::floor(*value) && std::abs(*value) < 1e15) return static_cast<int64_t>(*value);
  return Tidy(*value);
}

ordered_json CountOrNull(const std::optional<int64_t>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json BytesToJson(const sizing::PerGpuBytes& b) {
  return {{"weights", b.weights},     {"gradients", b.gradients},     {"master", b.master},
          {"optimizer", b.optimizer}, {"activations", b.activations}, {"logits", b.logits},
          {"buffers", b.buffers},     {"overhead", b.overhead},       {"total", b.total},
          {"capacity", b.capacity}};
}

ordered_json HostToJson(const sizing::HostBytes& h) {
  return {{"pinned", h.pinned}, {"offloaded", h.offloaded}, {"nvme", h.nvme}, {"disk", h.disk}};
}

ordered_json OptionToJson(const PlanOption& o, bool whole) {
  return {{"product", o.product},
          {"gpus", o.gpus},
          {"perNode", o.per_node},
          {"strategy", std::string(api::ToString(o.strategy))},
          {"shardRanks", o.shard_ranks},
          {"replicas", o.replicas},
          {"recompute", RecomputeName(o.checkpointing)},
          {"offload", OffloadName(o.offload)},
          {"microBatch", o.micro_batch},
          {"accumulation", o.accumulation},
          {"effectiveBatch", o.effective_batch},
          {"fits", o.fits},
          {"tight", o.tight},
          {"stateFits", o.state_fits},
          {"perGPU", BytesToJson(o.bytes)},
          {"host", HostToJson(o.host)},
          {"mfu", Tidy(o.mfu)},
          {"efficiency", Tidy(o.efficiency)},
          {"expectedEfficiency", Tidy(o.physical_efficiency)},
          {"speedup", Tidy(o.speedup)},
          {"stepSeconds", NumberOrNull(o.step_seconds)},
          {"tokensPerSecond", NumberOrNull(o.tokens_per_second)},
          {"hours", NumberOrNull(o.hours, whole)},
          {"cost", NumberOrNull(o.cost, whole)},
          {"checkpointBytes", o.checkpoint_bytes},
          {"why", o.why}};
}

ordered_json RequestToJson(const sizing::PlanRequest& r, const RenderOptions& options) {
  ordered_json request = {
      {"sequenceLength", r.sequence_length},
      {"globalBatchSize", r.global_batch},
      {"precision", std::string(api::ToString(r.precision))},
      {"optimizer", OptimizerName(r.optimizer)},
      {"adapter", AdapterName(r.adapter.type)},
      {"flashAttention", r.flash_attention},
      {"tensorParallel", r.tensor_parallel},
      {"pipelineParallel", r.pipeline_parallel},
      {"bundledTrainer", r.bundled_trainer},
      {"goal", std::string(api::ToString(r.goal))},
      {"currency", options.currency.empty() ? ordered_json(nullptr) : ordered_json(options.currency)}};
  if (r.optimizer == sizing::Optimizer::kSgd) request["momentum"] = r.momentum;
  return request;
}

}  // namespace

ordered_json PlanToJson(const Plan& plan, const RenderOptions& render) {
  const bool whole = plan.request.round_hours;
  ordered_json minimums = ordered_json::array();
  for (const auto& m : plan.minimums) {
    minimums.push_back({{"product", m.product},
                        {"stateOnly", CountOrNull(m.state_only)},
                        {"full", CountOrNull(m.full)},
                        {"difference", m.difference}});
  }
  ordered_json options = ordered_json::array();
  for (const PlanOption& o : plan.options) options.push_back(OptionToJson(o, whole));
  ordered_json range = nullptr;
  if (plan.range) {
    range = {{"product", plan.range->product},
             {"minimum", plan.range->minimum},
             {"maximum", plan.range->maximum},
             {"whyMaximum", plan.range->why_maximum}};
  }
  ordered_json runners_up = ordered_json::array();
  for (const auto& r : plan.runners_up) {
    runners_up.push_back({{"why", r.why_lost}, {"option", OptionToJson(r.option, whole)}});
  }
  ordered_json ways_out = nullptr;
  if (plan.ways_out) {
    ordered_json ways = ordered_json::array();
    for (const auto& way : plan.ways_out->ways) {
      ways.push_back({{"what", way.what}, {"option", OptionToJson(way.option, whole)}});
    }
    ways_out = {{"tooBig", plan.ways_out->too_big}, {"ways", std::move(ways)}};
  }
  return {{"model",
           {{"name", plan.shape.name},
            {"parameters", plan.shape.parameters},
            {"activeParameters", sizing::ActiveParameters(plan.shape)},
            {"stateBytes", plan.state_bytes},
            {"assumption", plan.shape.assumption}}},
          {"request", RequestToJson(plan.request, render)},
          {"minimum", {{"stateOnly", CountOrNull(plan.minimum_state_only)}, {"full", CountOrNull(plan.minimum_full)}}},
          {"minimums", std::move(minimums)},
          {"options", std::move(options)},
          {"chosen", plan.chosen ? ordered_json(*plan.chosen) : ordered_json(nullptr)},
          {"notChosen", plan.not_chosen},
          {"range", std::move(range)},
          {"runnersUp", std::move(runners_up)},
          {"advice", plan.advice},
          {"warnings", plan.warnings},
          {"waysOut", std::move(ways_out)}};
}

}  // namespace trainyard::cli
