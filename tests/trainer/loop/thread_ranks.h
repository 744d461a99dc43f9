// A tiny job whose ranks are threads of this process, for tests that look into their sessions. Thread-safety: one
// thread.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/trainer/loop/job_fixture.h"
#include "trainer/dist/in_process_comm.h"
#include "trainer/loop/setup.h"

namespace trainyard::loop {

class ThreadRanksTest : public JobTest {
 protected:
  // Runs `body` on every rank of a job as it is now; the first failure of any rank is returned.
  std::string OnRanks(int world, const std::function<Outcome<void>(Session&)>& body) {
    ++attempt_;
    WriteText(dir_ / "job.json", job_.dump());
    auto comms = dist::MakeInProcessComms(world);
    std::vector<std::string> failures(static_cast<size_t>(world));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < world; ++rank) {
      threads.emplace_back([&, rank] {
        auto& failure = failures[static_cast<size_t>(rank)];
        auto& comm = comms[static_cast<size_t>(rank)];
        try {
          Session session;
          session.env = EnvOf(rank, world);
          if (auto prepared = Prepare(session, [](const char*) -> const char* { return nullptr; }); !prepared) {
            failure = prepared.error().message;
            comm->Abort();
            return;
          }
          session.world = std::move(comm);
          BuildModel(session);
          if (auto done = body(session); !done) {
            failure = done.error().message;
            session.world->Abort();
          }
        } catch (const std::exception& exception) {
          failure = exception.what();
        }
      });
    }
    for (auto& thread : threads) thread.join();
    for (const std::string& failure : failures) {
      if (!failure.empty()) return failure;
    }
    return "";
  }

  config::RankEnv EnvOf(int rank, int world) const {
    config::RankEnv env;
    env.rank = rank;
    env.world = world;
    env.local_rank = rank;
    env.uid = "uid-1";
    env.attempt = attempt_;
    env.job_file = dir_ / "job.json";
    env.volume_root = dir_ / "volumes";
    env.run_dir = dir_ / "run";
    return env;
  }

  int attempt_ = 0;
};

}  // namespace trainyard::loop
