#include "operator/api/defaults.h"

#include <algorithm>

namespace trainyard::api {
namespace {

// Beyond it validation refuses the value anyway; keeps the arithmetic below inside 64 bits.
constexpr int64_t kSane = int64_t{1} << 40;

void ApplyDefaults(Architecture& a, const Spec& spec) {
  if (a.kv_heads == 0) a.kv_heads = a.attention_heads;
  if (a.ffn_size == 0 && a.hidden_size > 0 && a.hidden_size < kSane) {
    const int64_t wanted = (8 * a.hidden_size + 2) / 3;
    a.ffn_size = a.family == Family::kGpt2 ? 4 * a.hidden_size : (wanted + 15) / 16 * 16;
  }
  if (a.vocab_size == 0 && (!spec.data || spec.data->format == DataFormat::kText)) a.vocab_size = 256;
  if (a.max_positions == 0) a.max_positions = spec.training.sequence_length;
}

}  // namespace

void ApplyDefaults(TrainingJob& job) {
  if (job.meta.ns.empty()) job.meta.ns = "default";
  if (job.spec.model.architecture) ApplyDefaults(*job.spec.model.architecture, job.spec);
  if (job.spec.checkpoint && job.spec.checkpoint->path.empty()) job.spec.checkpoint->path = job.meta.name;
}

int64_t DecaySteps(const Training& training) {
  const Schedule& schedule = training.schedule;
  if (schedule.decay_steps > 0) return schedule.decay_steps;
  const int64_t tenth = training.steps / 10 + (training.steps % 10 != 0);
  return std::clamp<int64_t>(training.steps - schedule.warmup_steps, 0, tenth);
}

}  // namespace trainyard::api
