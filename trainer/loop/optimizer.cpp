#include "trainer/loop/optimizer.h"

#include <nlohmann/json.hpp>

#include "trainer/optim/schedule.h"

namespace trainyard::loop {
namespace {

using optim::Schedule;

Schedule::Type TypeOf(config::ScheduleType type) {
  switch (type) {
    case config::ScheduleType::kCosine:
      return Schedule::Type::kCosine;
    case config::ScheduleType::kLinear:
      return Schedule::Type::kLinear;
    case config::ScheduleType::kConstant:
      return Schedule::Type::kConstant;
    case config::ScheduleType::kWarmupStableDecay:
      return Schedule::Type::kWarmupStableDecay;
  }
  return Schedule::Type::kCosine;
}

Schedule::Shape ShapeOf(config::DecayShape shape) {
  switch (shape) {
    case config::DecayShape::kLinear:
      return Schedule::Shape::kLinear;
    case config::DecayShape::kCosine:
      return Schedule::Shape::kCosine;
    case config::DecayShape::kSqrt:
      return Schedule::Shape::kSqrt;
  }
  return Schedule::Shape::kLinear;
}

}  // namespace

optim::Options OptimizerOf(const config::Optimizer& o) {
  const optim::AdamWOptions adamw{o.beta1, o.beta2, o.epsilon, o.weight_decay};
  switch (o.kind) {
    case config::OptimizerKind::kAdamW:
      return adamw;
    case config::OptimizerKind::kAdamW8bit:
      return optim::AdamW8bitOptions{adamw};
    case config::OptimizerKind::kAdafactor:
      return optim::AdafactorOptions{o.weight_decay};
    case config::OptimizerKind::kSgd:
      return optim::SgdOptions{o.momentum, o.nesterov, o.weight_decay};
  }
  return adamw;
}

double PlannedRate(const config::Training& training, int64_t step) {
  const config::Schedule& s = training.schedule;
  return optim::LearningRate({.type = TypeOf(s.type),
                              .peak = training.optimizer.learning_rate,
                              .warmup_steps = s.warmup_steps,
                              .total_steps = training.steps,
                              .min_ratio = s.min_learning_rate_ratio,
                              .decay_steps = s.decay_steps,
                              .shape = ShapeOf(s.decay_shape)},
                             step);
}

nlohmann::ordered_json RateState(const config::Training& t) {
  constexpr const char* kTypes[] = {"Cosine", "Linear", "Constant", "WarmupStableDecay"};
  constexpr const char* kShapes[] = {"Linear", "Cosine", "Sqrt"};
  return {{"optimizer.learningRate", t.optimizer.learning_rate},
          {"schedule.type", kTypes[static_cast<int>(t.schedule.type)]},
          {"schedule.warmupSteps", t.schedule.warmup_steps},
          {"schedule.minLearningRateRatio", t.schedule.min_learning_rate_ratio},
          {"schedule.decaySteps", t.schedule.decay_steps},
          {"schedule.decayShape", kShapes[static_cast<int>(t.schedule.decay_shape)]},
          {"steps", t.steps}};
}

std::vector<std::string> RateChanges(const nlohmann::json& state, const config::Training& training) {
  std::vector<std::string> changes;
  const nlohmann::json now = RateState(training), before = state.value("rate", nlohmann::json::object());
  for (const auto& [key, value] : now.items()) {
    if (!before.is_object() || !before.contains(key) || before[key] == value) continue;
    changes.push_back("training." + key + " is " + value.dump() + " instead of " + before[key].dump());
  }
  return changes;
}

std::string StateKind(const config::Optimizer& o) {
  switch (o.kind) {
    case config::OptimizerKind::kAdamW:
      return "AdamW";
    case config::OptimizerKind::kAdamW8bit:
      return "AdamW8bit";
    case config::OptimizerKind::kAdafactor:
      return "Adafactor";
    case config::OptimizerKind::kSgd:
      break;
  }
  return o.momentum > 0 ? "SGD with momentum" : "SGD without momentum";
}

}  // namespace trainyard::loop
