#include "trainer/loop/step_watch.h"

#include <utility>

namespace trainyard::loop {
namespace {

StepWatch::Time Now() { return std::chrono::steady_clock::now(); }

// As spans are called; null for what has spans of its own or is nothing.
const char* SpanName(observe::Activity activity) {
  switch (activity) {
    case observe::Activity::kData:
      return "data";
    case observe::Activity::kOptimizer:
      return "optimizer";
    case observe::Activity::kCheckpoint:
      return "save";
    case observe::Activity::kEvaluation:
      return "evaluation";
    default:
      return nullptr;
  }
}

}  // namespace

void StepWatch::Switch(observe::Activity next) {
  const Time now = Now();
  clock_.Switch(next, now);
  if (const char* name = SpanName(current_); name != nullptr) trace_.Span(name, "step", since_, now);
  current_ = next;
  since_ = now;
}

void StepWatch::Waited(const dist::ObservedCall& call, Time begin, Time end) {
  clock_.Waited(std::chrono::duration<double>(end - begin).count());
  if (!trace_.on()) return;
  const std::string name = std::string(call.name) + " " + std::string(call.label);
  trace_.Span("wait: " + name, "wait", begin, end, call.bytes);
  trace_.Collective(name, call.issued, end, call.bytes);
}

void TracedHost::PreForward(int unit) {
  entered_[static_cast<size_t>(unit)] = Now();
  host_.PreForward(unit);
}

at::Tensor TracedHost::PostForward(int unit, at::Tensor y) {
  at::Tensor out = host_.PostForward(unit, std::move(y));
  if (!trace_.on()) return out;
  trace_.Span("forward " + names_[static_cast<size_t>(unit)], "forward", entered_[static_cast<size_t>(unit)], Now());
  if (at::GradMode::is_enabled() && out.requires_grad()) {
    out.register_hook([this, unit](const at::Tensor& grad) {
      BeginBackward(unit);
      return grad;
    });
  }
  return out;
}

void TracedHost::BeginRecompute() {
  EndBackward();
  host_.BeginRecompute();
}

void TracedHost::EndRecompute() {
  EndBackward();  // of the unit that ran again
  host_.EndRecompute();
}

void TracedHost::BeginBackward(int unit) {
  EndBackward();
  backward_ = unit;
  backward_since_ = Now();
}

void TracedHost::EndBackward() {
  if (!backward_) return;
  trace_.Span("backward " + names_[static_cast<size_t>(*backward_)], "backward", backward_since_, Now());
  backward_.reset();
}

}  // namespace trainyard::loop
