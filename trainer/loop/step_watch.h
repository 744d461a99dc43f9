// Where this rank's time goes: the clock of the steps, the trace of a few of them, and the waits for peers, which the
// groups report as they happen. Thread-safety: as PhaseClock and Trace.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "trainer/dist/observer.h"
#include "trainer/engine/parameter_host.h"
#include "trainer/observe/phase_clock.h"
#include "trainer/observe/trace.h"

namespace trainyard::loop {

class StepWatch final : public dist::CommObserver {
 public:
  using Time = std::chrono::steady_clock::time_point;
  explicit StepWatch(int rank) : clock_(std::chrono::steady_clock::now()), trace_(rank) {}

  observe::PhaseClock& clock() { return clock_; }
  observe::Trace& trace() { return trace_; }
  // Ends the current activity of the clock now, and shows it in the trace.
  void Switch(observe::Activity next);
  void Waited(const dist::ObservedCall& call, Time begin, Time end) override;

 private:
  observe::PhaseClock clock_;
  observe::Trace trace_;
  observe::Activity current_ = observe::Activity::kOther;
  Time since_ = std::chrono::steady_clock::now();
};

// Between model and engine while a job asks for a trace: passes everything on, and shows when the forward and the
// backward of each unit ran. The backward of a unit lasts from the gradient of its output to that of the unit before
// it, or to the second forward of that one where activations are recomputed.
class TracedHost final : public engine::ParameterHost {
 public:
  // Both must outlive it. `names`: of the units, as spans are called.
  TracedHost(engine::ParameterHost& host, observe::Trace& trace, std::vector<std::string> names)
      : host_(host), trace_(trace), names_(std::move(names)), entered_(names_.size()) {}

  const at::Tensor& Param(int unit, int index) const override { return host_.Param(unit, index); }
  void PreForward(int unit) override;
  at::Tensor PostForward(int unit, at::Tensor y) override;
  void BeginRecompute() override;
  void EndRecompute() override;
  // Backward is over.
  void EndBackward();

 private:
  void BeginBackward(int unit);

  engine::ParameterHost& host_;
  observe::Trace& trace_;
  const std::vector<std::string> names_;
  std::vector<StepWatch::Time> entered_;
  std::optional<int> backward_;  // the unit whose backward runs
  StepWatch::Time backward_since_;
};

}  // namespace trainyard::loop
