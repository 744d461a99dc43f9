// The host that shows a model's units in a trace: it passes every call on, so that nothing changes but the trace, and
// with recomputation the second forward and the backward of a unit are spans of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "trainer/loop/step_watch.h"

namespace trainyard::loop {
namespace {

using ::testing::ElementsAre;

// One parameter of one element for each of three units.
class Recorder final : public engine::ParameterHost {
 public:
  Recorder() {
    for (int u = 0; u < 3; ++u) parameters_.push_back(at::full({1}, u + 2.0).set_requires_grad(true));
  }
  const at::Tensor& Param(int unit, int /*index*/) const override { return parameters_[static_cast<size_t>(unit)]; }
  void PreForward(int unit) override { calls += "+" + std::to_string(unit); }
  at::Tensor PostForward(int unit, at::Tensor y) override {
    calls += "-" + std::to_string(unit);
    return y;
  }
  void BeginRecompute() override { calls += "("; }
  void EndRecompute() override { calls += ")"; }

  std::string calls;

 private:
  std::vector<at::Tensor> parameters_;
};

at::Tensor Unit(engine::ParameterHost& host, int unit, const at::Tensor& x) {
  host.PreForward(unit);
  return host.PostForward(unit, x * host.Param(unit, 0));
}

// Names of the spans in the order in which they began.
std::vector<std::string> Spans(observe::Trace& trace) {
  const auto json = nlohmann::json::parse(trace.Finish({}, {}));
  std::vector<std::pair<double, std::string>> spans;
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] == "X") spans.emplace_back(event["ts"].get<double>(), event["name"].get<std::string>());
  }
  std::stable_sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> names;
  for (auto& [at, name] : spans) names.push_back(std::move(name));
  return names;
}

class TracedHostTest : public ::testing::Test {
 protected:
  Recorder recorder_;
  observe::Trace trace_{0};
  TracedHost host_{recorder_, trace_, {"root", "first", "second"}};
};

TEST_F(TracedHostTest, ShowsForwardAndBackwardOfEachUnit) {
  trace_.Start();
  const at::Tensor x = at::ones({1});
  Unit(host_, 2, Unit(host_, 1, x)).sum().backward();
  host_.EndBackward();
  EXPECT_EQ(recorder_.calls, "+1-1+2-2");
  EXPECT_EQ(recorder_.Param(1, 0).grad().item<float>(), 4);
  EXPECT_THAT(Spans(trace_), ElementsAre("forward first", "forward second", "backward second", "backward first"));
}

TEST_F(TracedHostTest, RecomputationPassesThroughAndIsShown) {
  trace_.Start();
  at::Tensor x = at::ones({1}).set_requires_grad(true);
  {
    at::NoGradGuard no_graph;
    Unit(host_, 1, x);
  }
  host_.BeginRecompute();
  Unit(host_, 1, x).sum().backward();
  host_.EndRecompute();
  host_.EndBackward();
  EXPECT_EQ(recorder_.calls, "+1-1(+1-1)");
  EXPECT_THAT(Spans(trace_), ElementsAre("forward first", "forward first", "backward first"));
}

TEST_F(TracedHostTest, OutsideOfTheWindowItOnlyPassesOn) {
  Unit(host_, 1, at::ones({1})).sum().backward();
  host_.EndBackward();
  EXPECT_EQ(recorder_.calls, "+1-1");
  EXPECT_THAT(Spans(trace_), ElementsAre());
}

}  // namespace
}  // namespace trainyard::loop
