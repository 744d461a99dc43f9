#include "trainer/dist/in_process_comm.h"

#include <thread>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tests/trainer/dist/conformance.h"

namespace trainyard::dist {
namespace {

using Param = std::tuple<ConformanceCase, int>;

std::string Name(const testing::TestParamInfo<Param>& info) {
  return std::string(std::get<0>(info.param).name) + "At" + std::to_string(std::get<1>(info.param));
}

// Runs `body` as every rank of a world of threads; each thread destroys its own Comm.
void RunThreads(int world, const std::function<std::string(Comm&)>& body) {
  auto comms = MakeInProcessComms(world);
  std::vector<std::string> problems(world);
  std::vector<std::thread> threads;
  for (int r = 0; r < world; ++r) {
    threads.emplace_back([&, r] {
      at::set_num_threads(1);  // otherwise each rank starts a pool of its own
      std::unique_ptr<Comm> comm = std::move(comms[r]);
      try {
        problems[r] = body(*comm);
      } catch (const std::exception& e) {
        problems[r] = std::string("threw ") + e.what();
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  for (int r = 0; r < world; ++r) {
    EXPECT_EQ(problems[r], "") << "rank " << r;
  }
}

class InProcessHealthy : public testing::TestWithParam<Param> {};
TEST_P(InProcessHealthy, Conforms_Bug9_59) { RunThreads(std::get<1>(GetParam()), std::get<0>(GetParam()).run); }
INSTANTIATE_TEST_SUITE_P(Comm, InProcessHealthy,
                         testing::Combine(testing::ValuesIn(HealthyCases()), testing::Values(1, 2, 3, 4)), Name);

class InProcessFailing : public testing::TestWithParam<Param> {};
TEST_P(InProcessFailing, Conforms) { RunThreads(std::get<1>(GetParam()), std::get<0>(GetParam()).run); }
INSTANTIATE_TEST_SUITE_P(Comm, InProcessFailing,
                         testing::Combine(testing::ValuesIn(FailingCases()), testing::Values(2, 3)), Name);

TEST(InProcessComm, RankThatLeavesIsALostPeer) {
  RunThreads(3, [](Comm& c) -> std::string {
    if (c.rank() == 1) {
      return "";  // destroys its Comm
    }
    CommError::Kind kind{};
    std::string problem = ExpectCommError([&] { c.Barrier(); }, std::chrono::seconds(2), &kind);
    return problem.empty() && kind != CommError::Kind::kPeerLost ? "wrong kind" : problem;
  });
}

TEST(InProcessComm, SaysWhichCallsDiffer) {
  RunThreads(2, [](Comm& c) -> std::string {
    std::string message;
    std::string problem = ExpectCommError(
        [&] {
          c.AllReduce(at::ones({c.rank() + 1}), Reduce::kSum, {.label = "step " + std::to_string(c.rank())})->Wait();
        },
        std::chrono::seconds(2), nullptr, &message);
    return problem.empty() && message.find("step 0") == std::string::npos ? message : problem;
  });
}

class Recorder final : public CommObserver {
 public:
  using Time = std::chrono::steady_clock::time_point;
  void Waited(const ObservedCall& call, Time begin, Time end) override {
    ordered = ordered && call.issued <= begin && begin <= end;
    said += std::string(call.name) + " '" + std::string(call.label) + "' " + std::to_string(call.bytes) + "; ";
  }
  std::string said;
  bool ordered = true;
};

TEST(InProcessComm, TellsItsObserverOfEveryWait) {
  RunThreads(2, [](Comm& c) -> std::string {
    auto recorder = std::make_shared<Recorder>();
    c.set_observer(recorder);
    const WorkPtr work = c.AllReduce(at::ones({4}), Reduce::kSum, {.label = "a"});
    if (!recorder->said.empty()) return "told before the wait: " + recorder->said;
    work->Wait();
    work->Wait();  // told once
    recorder->said += "| ";
    c.AllReduce(at::empty({0}), Reduce::kSum)->Wait();  // no backend, no wait
    const auto part = c.Split(0, c.rank());
    recorder->said = recorder->said.substr(0, recorder->said.find('|'));
    part->AllGather(at::empty({2, 3}), at::ones({3}), {.label = "b"})->Wait();
    c.set_observer(nullptr);
    c.Barrier();
    const std::string want = "AllReduce 'a' 16; AllGather 'b' 24; ";
    return recorder->said != want ? recorder->said : recorder->ordered ? "" : "times out of order";
  });
}

}  // namespace
}  // namespace trainyard::dist
