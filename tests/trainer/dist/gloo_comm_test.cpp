// This process runs no LibTorch operator: its ranks are forks of it.
#include "trainer/dist/gloo_comm.h"

#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/dist/conformance.h"
#include "tests/trainer/dist/fork_ranks.h"
#include "trainer/dist/peer_names.h"

namespace trainyard::dist {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using Param = std::tuple<ConformanceCase, int>;

std::string Name(const testing::TestParamInfo<Param>& info) {
  return std::string(std::get<0>(info.param).name) + "At" + std::to_string(std::get<1>(info.param));
}

Rendezvous At(int port, int rank, int world) {
  Rendezvous to;
  to.host = "127.0.0.1";
  to.port = port;
  to.prefix = "uid/1/0";
  to.rank = rank;
  to.world = world;
  to.timeout = seconds(20);
  return to;
}

// A rank's body: connects, then runs `body`.
std::function<std::string(int)> Connected(int world, const std::function<std::string(Comm&)>& body) {
  const int port = FreePort();
  return [=](int rank) -> std::string {
    at::set_num_threads(1);
    auto comm = ConnectGloo(At(port, rank, world));
    return comm ? body(**comm) : comm.error().message;
  };
}

void RunProcesses(int world, const std::function<std::string(Comm&)>& body) {
  const auto outcomes = ForkRanks(world, Connected(world, body));
  for (int r = 0; r < world; ++r) {
    EXPECT_TRUE(outcomes[r].ended) << "rank " << r;
    EXPECT_EQ(outcomes[r].text, "") << "rank " << r;
  }
}

class GlooHealthy : public testing::TestWithParam<Param> {};
TEST_P(GlooHealthy, Conforms_Bug9_59) { RunProcesses(std::get<1>(GetParam()), std::get<0>(GetParam()).run); }
INSTANTIATE_TEST_SUITE_P(Comm, GlooHealthy,
                         testing::Combine(testing::ValuesIn(HealthyCases()), testing::Values(1, 2, 3, 4)), Name);

class GlooFailing : public testing::TestWithParam<Param> {};
TEST_P(GlooFailing, Conforms) { RunProcesses(std::get<1>(GetParam()), std::get<0>(GetParam()).run); }
INSTANTIATE_TEST_SUITE_P(Comm, GlooFailing, testing::Combine(testing::ValuesIn(FailingCases()), testing::Values(2, 3)),
                         Name);

TEST(GlooComm, KilledPeerEndsTheOthersWithinSeconds) {
  const auto outcomes = ForkRanks(4, Connected(4, [](Comm& c) -> std::string {
                                    at::Tensor t = at::ones({1000000});
                                    c.AllReduce(t, Reduce::kSum)->Wait();
                                    if (c.rank() == 2) {
                                      kill(getpid(), SIGKILL);
                                    }
                                    CommError::Kind kind{};
                                    std::string problem = ExpectCommError(
                                        [&] {
                                          for (;;) {
                                            c.AllReduce(t, Reduce::kSum, {seconds(50), "gradients"})->Wait();
                                          }
                                        },
                                        seconds(5), &kind);
                                    return problem.empty() && kind != CommError::Kind::kPeerLost ? "kind" : problem;
                                  }));
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(outcomes[r].ended, r != 2);
    EXPECT_EQ(outcomes[r].text, "") << "rank " << r;
  }
}

TEST(GlooComm, StoppedPeerEndsTheOthersAtTheDeadline) {
  const auto body = Connected(3, [](Comm& c) -> std::string {
    at::Tensor t = at::ones({3000000});
    c.AllReduce(t, Reduce::kSum)->Wait();
    if (c.rank() == 1) {
      kill(getpid(), SIGSTOP);
      return "went on";
    }
    std::string message;
    std::string problem = ExpectCommError([&] { c.AllReduce(t, Reduce::kSum, {seconds(1), "gradients"})->Wait(); },
                                          seconds(4), nullptr, &message);
    return problem;
  });
  const auto outcomes = ForkRanks(3, body, [](const std::vector<pid_t>& pids) {
    int status = 0;
    // Until the others are gone; only then is the stopped one ended.
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(pids[0]), &info, WEXITED | WNOWAIT);
    waitid(P_PID, static_cast<id_t>(pids[2]), &info, WEXITED | WNOWAIT);
    ASSERT_EQ(waitpid(pids[1], &status, WUNTRACED), pids[1]);
    EXPECT_TRUE(WIFSTOPPED(status));
    kill(pids[1], SIGKILL);
  });
  for (int r : {0, 2}) {
    EXPECT_TRUE(outcomes[r].ended);
    EXPECT_EQ(outcomes[r].text, "") << "rank " << r;
    EXPECT_LT(outcomes[r].seconds, 10);
  }
}

// Where this is not so, a name server that does not answer costs 5 to 10 s a rank.
TEST(Rendezvous, NoLibraryOfTheProcessLooksUpTheNamesOfPeers) {
  EXPECT_TRUE(PeersAreNamedByAddress());
  sockaddr_in peer{};
  peer.sin_family = AF_INET;
  peer.sin_addr.s_addr = htonl(INADDR_LOOPBACK);  // its name is in every hosts file
  char host[NI_MAXHOST];
  // As c10d asks: no flag that forbids a look-up.
  auto* const as_libraries_see_it = reinterpret_cast<decltype(&getnameinfo)>(dlsym(RTLD_DEFAULT, "getnameinfo"));
  ASSERT_NE(as_libraries_see_it, nullptr);
  ASSERT_EQ(
      as_libraries_see_it(reinterpret_cast<const sockaddr*>(&peer), sizeof peer, host, sizeof host, nullptr, 0, 0), 0);
  EXPECT_STREQ(host, "127.0.0.1");
}

TEST(Rendezvous, PortInUseIsOneClearError) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  socklen_t length = sizeof any;
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&any), sizeof any), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&any), &length), 0);
  const int port = ntohs(any.sin_port);
  const auto outcomes = ForkRanks(1, [&](int) -> std::string {
    auto comm = ConnectGloo(At(port, 0, 2));
    return comm ? "connected" : std::string(ErrorCodeName(comm.error().code)) + ": " + comm.error().message;
  });
  close(fd);
  EXPECT_THAT(outcomes[0].text, HasSubstr("AlreadyExists: port " + std::to_string(port)));
  EXPECT_THAT(outcomes[0].text, HasSubstr("in use"));
  EXPECT_LT(outcomes[0].seconds, 5);
}

TEST(Rendezvous, NamesTheRanksThatDidNotCome) {
  const int port = FreePort();
  const auto outcomes = ForkRanks(2, [&](int rank) -> std::string {
    Rendezvous to = At(port, rank, 4);
    to.timeout = milliseconds(1500);
    auto comm = ConnectGloo(to);
    return comm ? "connected" : std::string(ErrorCodeName(comm.error().code)) + ": " + comm.error().message;
  });
  EXPECT_THAT(outcomes[0].text, HasSubstr("DeadlineExceeded: rendezvous: rank 2, 3 did not come"));
  // Rank 0 may be gone, and its store with it, a moment before the deadline of rank 1.
  EXPECT_THAT(outcomes[1].text, testing::AnyOf(HasSubstr("DeadlineExceeded: rendezvous: rank 2, 3 did not come"),
                                               HasSubstr("Unavailable: rendezvous: rank 0 left before")));
}

TEST(Rendezvous, TellsWhatItWaitsFor) {
  const int port = FreePort();
  const auto outcomes = ForkRanks(2, [&](int rank) -> std::string {
    Rendezvous to = At(port, rank, 3);
    to.timeout = milliseconds(1500);
    if (rank == 1) {
      to.host = "no-such-name.invalid";
    }
    std::string said;
    to.say_every = milliseconds(200);
    to.say = [&said](const std::string& line) { said += line + "\n"; };
    const auto comm = ConnectGloo(to);
    return comm ? "connected" : said;
  });
  EXPECT_THAT(outcomes[0].text, HasSubstr("waiting for rank 1, 2 of 3\nwaiting for rank 1, 2 of 3\n"));
  EXPECT_THAT(outcomes[1].text, HasSubstr("waiting for rank 0 at no-such-name.invalid:"));
  EXPECT_THAT(outcomes[1].text, HasSubstr("the name does not resolve"));
}

TEST(Rendezvous, TwoProcessesOfOneRankAreRefused) {
  const int port = FreePort();
  const auto outcomes = ForkRanks(3, [&](int rank) -> std::string {
    Rendezvous to = At(port, rank == 0 ? 0 : 1, 3);
    to.timeout = milliseconds(2000);
    auto comm = ConnectGloo(to);
    return comm ? "connected" : comm.error().message;
  });
  EXPECT_THAT(outcomes[1].text + outcomes[2].text, HasSubstr("two processes claim rank 1"));
}

TEST(Rendezvous, WaitsForARankZeroThatComesLate) {
  const int port = FreePort();
  const auto outcomes = ForkRanks(2, [&](int rank) -> std::string {
    if (rank == 0) {
      std::this_thread::sleep_for(milliseconds(700));
    }
    Rendezvous to = At(port, rank, 2);
    to.host = "localhost";
    auto comm = ConnectGloo(to);
    if (!comm) {
      return comm.error().message;
    }
    (*comm)->Barrier();
    return "";
  });
  EXPECT_EQ(outcomes[0].text, "");
  EXPECT_EQ(outcomes[1].text, "");
}

TEST(Rendezvous, UnknownNameEndsAtTheTimeout_Bug61) {
  const auto outcomes = ForkRanks(1, [&](int) -> std::string {
    Rendezvous to = At(29500, 1, 2);
    to.host = "no-such-host.invalid";
    to.timeout = milliseconds(500);
    auto comm = ConnectGloo(to);
    return comm ? "connected" : std::string(ErrorCodeName(comm.error().code)) + ": " + comm.error().message;
  });
  EXPECT_THAT(outcomes[0].text, HasSubstr("DeadlineExceeded: rank 0 cannot be reached at no-such-host.invalid:29500"));
}

TEST(Rendezvous, RefusesImpossibleNumbers) {
  EXPECT_EQ(ConnectGloo(At(1, 2, 2)).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(ConnectGloo(At(1, 0, 0)).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(ConnectGloo(At(70000, 0, 2)).error().code, ErrorCode::kInvalidArgument);
}

TEST(Rendezvous, AnotherRoundMeetsAgainOnTheSamePort) {
  const int port = FreePort();
  for (int round = 0; round < 3; ++round) {
    const auto outcomes = ForkRanks(2, [&](int rank) -> std::string {
      Rendezvous to = At(port, rank, 2);
      to.prefix = "uid/1/" + std::to_string(round);
      auto comm = ConnectGloo(to);
      if (!comm) {
        return comm.error().message;
      }
      (*comm)->Barrier();
      kill(getpid(), SIGKILL);  // leaves sockets behind
      return "";
    });
    EXPECT_EQ(outcomes[0].text, "") << round;
    EXPECT_EQ(outcomes[1].text, "") << round;
  }
}

}  // namespace
}  // namespace trainyard::dist
