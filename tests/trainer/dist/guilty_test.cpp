// Whoever keeps the others waiting is named by all of them: rank, collective and unit, within the deadline. The ranks
// are forks of this process, which runs no LibTorch operator.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <stdexcept>
#include <thread>

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/dist/fork_ranks.h"
#include "trainer/contract/flight_record.h"
#include "trainer/dist/gloo_comm.h"
#include "trainer/dist/inquiry.h"
#include "trainer/dist/mesh.h"
#include "trainer/dist/monitor.h"
#include "trainer/dist/situation.h"

namespace trainyard::dist {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

constexpr int kWorld = 3;
constexpr milliseconds kDeadline{3000};
constexpr double kSlack = 3;  // this machine may be busy; only the order of magnitude is held

std::unique_ptr<Comm> Connect(int port, int rank, int world, const std::string& record = "") {
  at::set_num_threads(1);
  Rendezvous to;
  to.host = "127.0.0.1";
  to.port = port;
  to.prefix = "uid/1/0";
  to.rank = rank;
  to.world = world;
  to.timeout = seconds(20);
  to.record_file = record;
  auto comm = ConnectGloo(to);
  if (!comm) throw std::runtime_error(comm.error().message);
  (*comm)->set_default_deadline(kDeadline);
  return std::move(*comm);
}

// One forward and backward through units whose output is w * x; `at_unit` runs in the backward of block.1.
void Step(Comm& c, const std::function<void()>& at_unit) {
  std::vector<at::Tensor> weights;
  at::Tensor x = at::ones({256});
  for (int u = 0; u < 3; ++u) {
    const std::string unit = "block." + std::to_string(u);
    at::Tensor all = at::empty({c.size() * 256});
    c.AllGather(all, at::ones({256}), {.label = "gather " + unit})->Wait();
    at::Tensor w = all.narrow(0, 0, 256).clone().requires_grad_();
    x = x * w;
    weights.push_back(w);
    w.register_hook([&c, u, unit, at_unit](const at::Tensor& gradient) {
      if (u == 1 && at_unit) at_unit();
      at::Tensor sum = gradient.clone();
      c.AllReduce(sum, Reduce::kOrderedSum, {.label = "reduce " + unit})->Wait();
      return sum;
    });
  }
  x.sum().backward();
}

// What each rank says when `guilty` does `deed` in the backward of block.1 in the second step.
std::vector<RankOutcome> Play(int guilty, const std::function<void(Comm&)>& deed,
                              const std::function<void(const std::vector<pid_t>&)>& meanwhile = {}) {
  const int port = FreePort();
  return ForkRanks(
      kWorld,
      [=](int rank) -> std::string {
        auto comm = Connect(port, rank, kWorld);
        Step(*comm, {});
        const auto start = std::chrono::steady_clock::now();
        try {
          Step(*comm, rank == guilty ? std::function<void()>([&] { deed(*comm); }) : nullptr);
          comm->Barrier({.label = "end"});
        } catch (const CommError& e) {
          const auto took = std::chrono::steady_clock::now() - start;
          return std::string(took <= kDeadline + milliseconds(600) ? "in time: " : "late: ") + e.what();
        }
        return "nothing was wrong";
      },
      meanwhile);
}

// All but the guilty one name it, and the call and unit in which it is missed.
void ExpectNamed(const std::vector<RankOutcome>& outcomes, int guilty, const testing::Matcher<std::string>& how) {
  for (int r = 0; r < kWorld; ++r) {
    if (r == guilty) continue;
    EXPECT_TRUE(outcomes[r].ended) << "rank " << r;
    EXPECT_THAT(outcomes[r].text, AllOf(HasSubstr("in time: "), HasSubstr("AllReduce 'reduce block.1'"), how))
        << "rank " << r;
  }
}

// Ends the guilty process once the others are gone by themselves.
std::function<void(const std::vector<pid_t>&)> KillLast(int guilty) {
  return [guilty](const std::vector<pid_t>& pids) {
    for (int r = 0; r < kWorld; ++r) {
      siginfo_t info{};
      if (r != guilty) waitid(P_PID, static_cast<id_t>(pids[r]), &info, WEXITED | WNOWAIT);
    }
    kill(pids[guilty], SIGKILL);
  };
}

class Guilty : public testing::TestWithParam<int> {};

TEST_P(Guilty, StoppedRankIsNamed) {
  const int guilty = GetParam();
  ExpectNamed(Play(
                  guilty, [](Comm&) { raise(SIGSTOP); }, KillLast(guilty)),
              guilty, HasSubstr("rank " + std::to_string(guilty) + " is silent: its process is stopped"));
}

// Calls that wait for disks are allowed hours, of which a stopped process gets no more than any other call allows.
TEST_P(Guilty, StoppedRankEndsCallsThatMayTakeHours) {
  const int guilty = GetParam(), port = FreePort();
  const auto outcomes = ForkRanks(
      kWorld,
      [=](int rank) -> std::string {
        auto comm = Connect(port, rank, kWorld);
        comm->Barrier({.label = "begin"});
        const auto start = std::chrono::steady_clock::now();
        if (rank == guilty) raise(SIGSTOP);
        try {
          comm->Barrier({.deadline = std::chrono::hours(2), .label = "checkpoint commit"});
        } catch (const CommError& e) {
          const auto took = std::chrono::steady_clock::now() - start;
          return std::string(took <= kDeadline * 3 / 2 + milliseconds(600) ? "in time: " : "late: ") + e.what();
        }
        return "nothing was wrong";
      },
      KillLast(guilty));
  for (int r = 0; r < kWorld; ++r) {
    if (r == guilty) continue;
    EXPECT_THAT(outcomes[r].text, AllOf(HasSubstr("in time: "), HasSubstr("checkpoint commit"),
                                        HasSubstr("rank " + std::to_string(guilty) + " is silent")))
        << "rank " << r;
  }
}

// A rank whose disk is slow answers, and is waited for.
TEST(Guilty, SlowDiskIsWaitedFor) {
  const int port = FreePort();
  const auto outcomes = ForkRanks(kWorld, [=](int rank) -> std::string {
    auto comm = Connect(port, rank, kWorld);
    comm->set_default_deadline(milliseconds(400));
    if (rank == 1) std::this_thread::sleep_for(seconds(2));  // what the test is about: five ordinary deadlines
    comm->Barrier({.deadline = std::chrono::hours(2), .label = "checkpoint commit"});
    return "all came";
  });
  for (const auto& outcome : outcomes) EXPECT_EQ(outcome.text, "all came");
}

TEST_P(Guilty, RankThatComputesForEverIsNamed) {
  const int guilty = GetParam();
  const auto outcomes = Play(
      guilty,
      [](Comm&) {
        for (;;) pause();
      },
      KillLast(guilty));
  ExpectNamed(outcomes, guilty,
              AllOf(HasSubstr("rank " + std::to_string(guilty) + " has not come: it has been outside of any call for "),
                    HasSubstr("after AllReduce 'reduce block.2'")));
}

TEST_P(Guilty, KilledRankIsNamed) {
  const int guilty = GetParam();
  ExpectNamed(Play(guilty, [](Comm&) { raise(SIGKILL); }), guilty,
              HasSubstr("rank " + std::to_string(guilty) + " is gone: its process has ended"));
}

TEST_P(Guilty, RankThatRaisesIsNamedWithItsReason) {
  const int guilty = GetParam();
  const int port = FreePort();
  const auto outcomes = ForkRanks(kWorld, [=](int rank) -> std::string {
    auto comm = Connect(port, rank, kWorld);
    try {
      Step(*comm, rank == guilty ? std::function<void()>([] { throw std::runtime_error("out of luck"); }) : nullptr);
    } catch (const CommError& e) {
      return std::string("in time: ") + e.what();
    } catch (const std::exception& e) {
      comm->Abort(e.what());
      return e.what();
    }
    return "nothing was wrong";
  });
  EXPECT_THAT(outcomes[guilty].text, HasSubstr("out of luck"));
  ExpectNamed(outcomes, guilty, HasSubstr("rank " + std::to_string(guilty) + " gave up: out of luck"));
  for (const RankOutcome& outcome : outcomes) EXPECT_LT(outcome.seconds, kSlack);  // at once, not at the deadline
}

TEST_P(Guilty, RankThatLeavesWithoutAWordIsNamed) {
  const int guilty = GetParam();
  const int port = FreePort();
  const auto outcomes = ForkRanks(kWorld, [=](int rank) -> std::string {
    auto comm = Connect(port, rank, kWorld);
    try {
      Step(*comm, rank == guilty ? std::function<void()>([] { throw std::runtime_error("out of luck"); }) : nullptr);
    } catch (const CommError& e) {
      return std::string("in time: ") + e.what();
    } catch (const std::exception& e) {
      return e.what();  // the comm goes with the stack
    }
    return "nothing was wrong";
  });
  ExpectNamed(outcomes, guilty, HasSubstr("rank " + std::to_string(guilty) + " has left the group"));
}

// Waits in a later call than the others: nobody's bytes fit, and everyone can tell.
TEST_P(Guilty, RankThatSkipsACollectiveIsNamed_Bug17_18) {
  const int guilty = GetParam();
  const auto outcomes = Play(guilty, [](Comm& c) {
    // Goes straight to what comes after the reduction of block.1.
    c.AllReduce(at::ones({256}), Reduce::kOrderedSum, {.label = "reduce block.0"})->Wait();
  });
  const std::string who = std::to_string(guilty);
  ExpectNamed(outcomes, guilty,
              AllOf(HasSubstr("the ranks make different calls: rank " + who + " is in AllReduce 'reduce block.0'"),
                    HasSubstr(", where rank ")));
  EXPECT_THAT(outcomes[guilty].text, HasSubstr("the ranks make different calls: rank " + who + " is in "));
  for (const RankOutcome& outcome : outcomes) EXPECT_LT(outcome.seconds, kSlack);
}

TEST_P(Guilty, RankThatMakesAnotherCollectiveIsNamed) {
  const int guilty = GetParam();
  const auto outcomes = Play(guilty, [](Comm& c) { c.Broadcast(at::ones({256}), 0, {.label = "weights"})->Wait(); });
  ExpectNamed(
      outcomes, guilty,
      HasSubstr("the ranks make different calls: rank " + std::to_string(guilty) + " is in Broadcast 'weights'"));
}

// The same operation on as many bytes, for another unit.
TEST_P(Guilty, RankInAnotherUnitIsNamed) {
  const int guilty = GetParam();
  const auto outcomes = Play(
      guilty, [](Comm& c) { c.AllReduce(at::ones({256}), Reduce::kOrderedSum, {.label = "reduce block.7"})->Wait(); });
  ExpectNamed(outcomes, guilty,
              HasSubstr("different calls: rank " + std::to_string(guilty) + " is in AllReduce 'reduce block.7'"));
}

INSTANTIATE_TEST_SUITE_P(Comm, Guilty, testing::Values(0, 1));

TEST(Guilty, OfTwoRanksBothCallsAreTold) {
  const int port = FreePort();
  const auto outcomes = ForkRanks(2, [=](int rank) -> std::string {
    auto comm = Connect(port, rank, 2);
    at::Tensor t = at::ones({8});
    try {
      rank == 0 ? comm->AllReduce(t, Reduce::kSum, {.label = "gradients"})->Wait()
                : comm->Broadcast(t, 0, {.label = "weights"})->Wait();
    } catch (const CommError& e) {
      return (e.kind() == CommError::Kind::kUsage ? "usage: " : "other: ") + std::string(e.what());
    }
    return "nothing was wrong";
  });
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_THAT(outcome.text, AllOf(HasSubstr("rank 0 is in AllReduce 'gradients' (#1, 32 bytes)"),
                                    HasSubstr("rank 1 is in Broadcast 'weights' (#1, 32 bytes)")));
  }
}

// Rank 3 of a 2 x 2 mesh stops; rank 0 waits for it only through rank 1 or 2, which wait in groups of their own.
TEST(Guilty, IsFoundAcrossTheGroupsOfAMesh) {
  const int port = FreePort();
  const auto outcomes = ForkRanks(
      4,
      [=](int rank) -> std::string {
        auto world = Connect(port, rank, 4);
        Mesh mesh(*world, 2);
        at::Tensor t = at::ones({8});
        mesh.shard().AllReduce(t, Reduce::kSum)->Wait();
        mesh.replicate().AllReduce(t, Reduce::kSum)->Wait();
        if (rank == 3) raise(SIGSTOP);
        try {
          mesh.replicate().AllReduce(t, Reduce::kSum, {.label = "replicas of block.0"})->Wait();
          mesh.shard().AllReduce(t, Reduce::kSum, {.label = "reduce block.0"})->Wait();
        } catch (const CommError& e) {
          return e.what();
        }
        return "nothing was wrong";
      },
      [](const std::vector<pid_t>& pids) {
        for (int r = 0; r < 3; ++r) {
          siginfo_t info{};
          waitid(P_PID, static_cast<id_t>(pids[r]), &info, WEXITED | WNOWAIT);
        }
        kill(pids[3], SIGKILL);
      });
  EXPECT_THAT(outcomes[0].text, AllOf(HasSubstr("'reduce block.0'"), HasSubstr("rank 3 is silent")));
  EXPECT_THAT(outcomes[1].text, AllOf(HasSubstr("'replicas of block.0'"), HasSubstr("rank 3 is silent")));
  EXPECT_THAT(outcomes[2].text, AllOf(HasSubstr("'reduce block.0'"), HasSubstr("rank 3 is silent")));
}

TEST(Situation, SurvivesTheWire) {
  Situation s;
  s.kind = Situation::Kind::kCall;
  s.text = "AllGather 'a\tb\nc' (#4, 5 bytes)";
  s.group_id = "world/split/0/1";
  s.group_name = "world/1";
  s.sequence = 4;
  s.signature = ~uint64_t{0};
  s.waiting_for = 7;
  s.milliseconds = 1500;
  const auto back = FromLine(ToLine(s));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->text, "AllGather 'a b c' (#4, 5 bytes)");
  EXPECT_EQ(back->group_id, s.group_id);
  EXPECT_EQ(back->group_name, s.group_name);
  EXPECT_EQ(back->sequence, 4);
  EXPECT_EQ(back->signature, s.signature);
  EXPECT_EQ(back->waiting_for, 7);
  EXPECT_EQ(Tell(2, *back),
            "rank 2 has not come: it has been in AllGather 'a b c' (#4, 5 bytes) of group world/1 for 1.5 s");
  EXPECT_FALSE(FromLine(""));
  EXPECT_FALSE(FromLine("9\t0\t0\t0\t0\ta\tb\tc"));
  EXPECT_TRUE(FromLine(ToLine({})));
}

// Its threads may not have begun when it ends.
TEST(Monitor, MayEndAtOnce) {
  for (int i = 0; i < 200; ++i) {
    auto monitor = Monitor::Start(std::make_shared<CallLog>(), 0, false);
    ASSERT_TRUE(monitor) << monitor.error().message;
  }
}

// A stranger that finds the port learns nothing and changes nothing.
TEST(Inquiry, IsAnsweredToThoseWhoKnowTheKeyAlone) {
  int asked = 0;
  auto server = InquiryServer::Start(false, "secret", [&](const std::string& question) {
    ++asked;
    return "you said " + question;
  });
  ASSERT_TRUE(server) << server.error().message;
  const int port = (*server)->port();
  const auto answers = Ask({{"127.0.0.1", port, "secret"}, {"127.0.0.1", port, "guess"}}, "hello", seconds(2));
  EXPECT_EQ(answers[0].text, "you said hello");
  EXPECT_EQ(answers[1].text, "");
  EXPECT_EQ(asked, 1);
  server->reset();
  EXPECT_EQ(Ask({{"127.0.0.1", port, "secret"}}, "hello", seconds(2))[0].kind, Answer::Kind::kGone);
}

}  // namespace
}  // namespace trainyard::dist
