// Who holds which GPUs and who waits for some, kept current for all decisions at once. A decision that gives GPUs out
// looks through a View: from its first look at the yard until it has reserved what it takes, nobody else looks. The
// reservation counts while the claim is being written, so that claims of many jobs can be written at once without
// giving a GPU out twice; in the same way a stop counts as soon as it is decided. The line is formed when somebody asks
// and something has changed since.
// Thread-safety: all members from any thread; a View by one.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "operator/lifecycle/lifecycle.h"
#include "operator/placement/census.h"
#include "operator/placement/line.h"
#include "operator/placement/live_yard.h"

namespace trainyard::controller {

class Ledger {
 public:
  using NodePtr = placement::LiveYard::NodePtr;
  using UsePtr = placement::LiveYard::UsePtr;
  using Bookings = std::vector<placement::Booking>;

  // What a job is to the line; at most one of the two.
  struct Standing {
    std::optional<placement::WaitingGang> waiting;
    std::optional<placement::RunningGang> running;
    bool operator==(const Standing&) const = default;
  };

  explicit Ledger(placement::YardOptions options) : yard_(std::move(options)) {}

  void SetNode(const NodePtr& node);
  void RemoveNode(const std::string& name);
  void ChangePod(const UsePtr& old, const UsePtr& now);
  // What the newest known version of the job books, and where it stands. True: others who wait may have more now.
  bool SetJob(const std::string& job_uid, const Bookings& claims, const Standing& standing);
  // The write that a reservation waited for has ended, and the job books this now. True: others who wait may have more.
  bool Settle(const std::string& job_uid, const Bookings& claims, const Standing& standing);

  struct Snapshot {
    placement::Census census;
    std::vector<std::string> levels;  // names of the topology levels, far to near
    placement::Line line;
  };
  Snapshot Look(TimePoint now);
  // UIDs of those in the line who may have something to do now: they fit, they would take less, or others must stop for
  // them; and the first few, whose words are the most read. In order.
  std::vector<std::string> Called(TimePoint now);
  // UIDs of all that stand in the line.
  std::set<std::string> InLine();

  class View : public lifecycle::Surroundings {
   public:
    using FindNodeFunction = std::function<NodePtr(const std::string& name)>;
    using PriorityFunction = std::function<Result<api::PriorityClass>(const std::string& name)>;
    using ExposureFunction = std::function<api::Exposure(const std::string& job_uid)>;
    using PathsFunction = std::function<std::vector<lifecycle::PathNeighbour>(const lifecycle::PathUser& asking)>;
    View(Ledger& ledger, TimePoint now, FindNodeFunction find_node, PriorityFunction priority,
         ExposureFunction exposure_beside, PathsFunction path_neighbours)
        : ledger_(ledger),
          now_(now),
          find_node_(std::move(find_node)),
          priority_(std::move(priority)),
          exposure_beside_(std::move(exposure_beside)),
          path_neighbours_(std::move(path_neighbours)) {}
    ~View() override;  // a place in the line that was asked for and not reserved is given up

    const api::NodeSnapshot* FindNode(const std::string& name) const override;
    const placement::Yard& Yard() const override;
    const placement::Line& Line(const placement::WaitingGang* asking) const override;
    // The same as it was last formed: for a decision that has asked.
    const placement::Line& LastLine() const;
    bool MayBePreempted(const std::string&) const override { return ledger_.victims_ > 0; }
    Result<api::PriorityClass> Priority(const std::string& name) const override { return priority_(name); }
    api::Exposure ExposureBeside(const std::string& job_uid) const override { return exposure_beside_(job_uid); }
    std::vector<lifecycle::PathNeighbour> PathNeighbours(const lifecycle::PathUser& asking) const override;
    // Counts these bookings beside the settled ones of the job, and its standing in place of the settled one, until
    // Settle(), which must follow. True: others who wait may have more now.
    bool Reserve(const std::string& job_uid, const Bookings& claims, const Standing& standing);
    // Lets others look again; what Yard() gave is no longer valid.
    void Release() { lock_ = {}; }

   private:
    Ledger& ledger_;
    const TimePoint now_;
    const FindNodeFunction find_node_;
    const PriorityFunction priority_;
    const ExposureFunction exposure_beside_;
    const PathsFunction path_neighbours_;
    mutable std::string asked_;                     // UID of the job that asked for its place in the line
    mutable std::map<std::string, NodePtr> nodes_;  // keeps alive what was given out
    mutable std::unique_lock<std::mutex> lock_;
  };

 private:
  void SettleLocked(const std::string& job_uid, const Bookings& claims);
  Bookings BookingsOf(const std::string& job_uid) const;  // settled and reserved
  // Tells the yard what the job books; `before` is what it booked. True: some of that is free now.
  bool BookLocked(const std::string& job_uid, const Bookings& before);
  // True: a waiting gang left the line without starting where it was due, or wants something else.
  bool StandLocked(const std::string& job_uid);
  // Whether the line counts on this job to end at quite another time.
  bool EndsOtherwise(const placement::RunningGang& gang) const;
  // Whether a gang that waits is to start on this node.
  bool CountedOn(const std::string& node) const;
  const placement::Line& LineLocked(TimePoint now, const std::string& asking);

  std::mutex mutex_;  // guards everything below
  placement::LiveYard yard_;
  std::map<std::string, Bookings> settled_;            // by job UID
  std::map<std::string, Bookings> reserved_;           // the same, while a write is under way
  std::unordered_map<std::string, Standing> stands_;   // by job UID, as the newest known version has it
  std::unordered_map<std::string, Standing> pending_;  // as decided, or asked for, while that is not written yet
  std::unordered_map<std::string, Standing> counted_;  // what of these the line is made of
  placement::Line line_;
  std::unordered_map<std::string, std::optional<TimePoint>> ends_;  // of running jobs, as `line_` has them, by UID
  bool stale_ = true;                // somebody may have more, or less, than `line_` says
  std::atomic<size_t> victims_ = 0;  // of `line_`
};

}  // namespace trainyard::controller
