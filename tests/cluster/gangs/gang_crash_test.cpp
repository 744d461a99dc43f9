// The operator is killed at every single call that it makes for a job, before the API server hears of it or before the
// operator hears of the answer, and another one goes on: the job must not notice.
#include <atomic>

#include "tests/cluster/gangs/gang_fixture.h"

namespace trainyard::gangs {
namespace {

using faults::Call;
using faults::Exchange;

class GangCrash : public GangTest {
 protected:
  // Writes, and the lists of a job's own pods that some of them rest on. Events tell people, nothing rests on them.
  static bool Matters(const Call& call) {
    const bool own_pods = call.Is("list", "pods") && !call.Query("labelSelector").empty();
    return (call.Mutates() && call.resource != "events" && call.resource != "leases") || own_pods;
  }

  // Sees one job through, from its creation to Succeeded, with a kill at its call number `k` from 0. False: it made
  // fewer calls.
  bool SeeThrough(const std::string& name, int k, bool carried_out) {
    std::atomic<bool> struck = false, killed = false;
    bool restarted = false, finished = false;
    proxy_->Add({name, Matters,
                 [this, carried_out, &killed, &struck](Exchange& exchange) {
                   struck = true;  // before anybody can see what it writes
                   if (carried_out && exchange.Forward()) exchange.Rest();
                   operator_->Kill();
                   exchange.Reset();
                   killed = true;
                 },
                 k, 1});
    SubmitGang(name, 2, 2);
    json job;
    const bool succeeded = Eventually([&] {
      if (killed && !restarted && !operator_->Running()) {
        proxy_->Remove(name);
        StartOperator();
        restarted = true;
      }
      job = JobNow(name);
      if (PhaseOf(job) == "Running" && !finished) {
        ExpectPodsOnce(name);
        Finish(name);
        finished = true;
      }
      return PhaseOf(job) == "Succeeded" && (!struck || restarted);
    });
    EXPECT_TRUE(succeeded) << job.dump(1);
    proxy_->Remove(name);
    EXPECT_EQ(AttemptOf(job), 1) << "call " << k << " cost an attempt";
    const json restarts = job["status"].value("restarts", json::object());
    EXPECT_EQ(restarts.value("user", 0) + restarts.value("infrastructure", 0), 0) << "call " << k << " cost a restart";
    // What the last write of the dead operator left undone is done: nothing is written about the job any more.
    return killed;
  }

  void SeeThroughAll(const std::string& prefix, bool carried_out) {
    MakeNodes(2);
    StartWatching();
    int k = 0;
    while (SeeThrough(prefix + std::to_string(k), k, carried_out) && !HasFailure()) ++k;
    std::printf("killed at each of %d calls\n", k);
    // Claim, Service, two pods, start, two gates, Running, Succeeded.
    EXPECT_GE(k, 9);
    EXPECT_EQ(History().undone, 0);
  }
};

TEST_F(GangCrash, BeforeEachCallIsHeard) { SeeThroughAll("before-", false); }

TEST_F(GangCrash, BeforeEachAnswerIsHeard) { SeeThroughAll("after-", true); }

}  // namespace
}  // namespace trainyard::gangs
