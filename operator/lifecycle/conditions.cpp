#include "operator/lifecycle/conditions.h"

#include <utility>

namespace trainyard::lifecycle {

const api::Condition* FindCondition(const api::JobStatus& status, std::string_view type) {
  for (const api::Condition& condition : status.conditions) {
    if (condition.type == type) return &condition;
  }
  return nullptr;
}

bool ConditionIs(const api::JobStatus& status, std::string_view type, std::string_view value) {
  const api::Condition* condition = FindCondition(status, type);
  return condition != nullptr && condition->status == value;
}

bool SetCondition(api::JobStatus& status, std::string_view type, bool value, std::string reason, std::string message,
                  int64_t generation, TimePoint now) {
  const char* text = value ? "True" : "False";
  auto* condition = const_cast<api::Condition*>(FindCondition(status, type));
  if (condition == nullptr) {
    condition = &status.conditions.emplace_back();
    condition->type = type;
  }
  bool changed = condition->status != text || condition->reason != reason;
  if (condition->status != text) {
    condition->status = text;
    condition->last_transition_time = now;
  }
  condition->reason = std::move(reason);
  condition->message = std::move(message);
  condition->observed_generation = generation;
  return changed;
}

std::string OneLine(std::string_view text, size_t limit) {
  std::string out;
  for (char c : text) {
    if (out.size() >= limit) {
      out.resize(limit - 3);
      return out + "...";
    }
    bool printable = c >= ' ' && c <= '~';
    if (printable) {
      out += c;
    } else if (!out.empty() && out.back() != ' ') {
      out += c == '\n' || c == '\t' || c == '\r' ? ' ' : '?';
    }
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

}  // namespace trainyard::lifecycle
