// Who holds which GPUs, kept current for all decisions at once. A decision that gives GPUs out looks through a View:
// from its first look at the yard until it has reserved what it takes, nobody else looks. The reservation counts while
// the claim is being written, so that claims of many jobs can be written at once without giving a GPU out twice.
// Thread-safety: all members from any thread; a View by one.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "operator/lifecycle/lifecycle.h"
#include "operator/placement/live_yard.h"

namespace trainyard::controller {

class Ledger {
 public:
  using NodePtr = placement::LiveYard::NodePtr;
  using UsePtr = placement::LiveYard::UsePtr;
  using Bookings = std::vector<placement::Booking>;

  explicit Ledger(placement::YardOptions options) : yard_(std::move(options)) {}

  void SetNode(const NodePtr& node);
  void RemoveNode(const std::string& name);
  void ChangePod(const UsePtr& old, const UsePtr& now);
  // What the newest known version of the job books.
  void SetClaims(const std::string& job_uid, const Bookings& claims);
  // The write that a reservation waited for has ended, and the job books this now. True: there was a reservation.
  bool Settle(const std::string& job_uid, const Bookings& claims);

  struct Gpus {
    int64_t used = 0;
    int64_t free = 0;
  };
  // Of nodes that are fit for gangs, by product.
  std::map<std::string, Gpus> ByProduct();

  class View : public lifecycle::Surroundings {
   public:
    using FindNodeFunction = std::function<NodePtr(const std::string& name)>;
    View(Ledger& ledger, FindNodeFunction find_node) : ledger_(ledger), find_node_(std::move(find_node)) {}

    const api::NodeSnapshot* FindNode(const std::string& name) const override;
    const placement::Yard& Yard() const override;
    const placement::Line& Line(const placement::WaitingGang* asking) const override;
    bool MayBePreempted(const std::string&) const override { return false; }
    Result<api::PriorityClass> Priority(const std::string&) const override { return api::PriorityClass(); }
    // Counts these bookings beside the settled ones of the job, until Settle().
    void Reserve(const std::string& job_uid, const Bookings& claims);
    // Lets others look again; what Yard() gave is no longer valid.
    void Release() { lock_ = {}; }

   private:
    Ledger& ledger_;
    const FindNodeFunction find_node_;
    mutable std::map<std::string, NodePtr> nodes_;  // keeps alive what was given out
    mutable std::unique_lock<std::mutex> lock_;
    mutable placement::Line line_;
  };

 private:
  bool SettleLocked(const std::string& job_uid, const Bookings& claims);  // false: nothing has changed
  void BookLocked(const std::string& job_uid);

  std::mutex mutex_;  // guards everything below
  placement::LiveYard yard_;
  std::map<std::string, Bookings> settled_;   // by job UID
  std::map<std::string, Bookings> reserved_;  // the same, while a write is under way
};

}  // namespace trainyard::controller
