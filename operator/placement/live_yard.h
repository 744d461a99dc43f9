// A Yard that follows the cluster: told of each change of a node, a pod or a claim, it works out again only the nodes
// that the change touched. At any moment it equals what Yard::Build makes of the same nodes, pods and claims.
// Thread-safety: none; its owner holds a lock.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "operator/placement/eligibility.h"
#include "operator/placement/yard.h"

namespace trainyard::placement {

class LiveYard {
 public:
  using NodePtr = std::shared_ptr<const api::NodeSnapshot>;
  using UsePtr = std::shared_ptr<const PodUse>;

  explicit LiveYard(YardOptions options)
      : options_(std::move(options)), products_(options_.catalogue), census_(options_.topology) {
    yard_.catalogue_ = options_.catalogue;
    yard_.fabrics_ = options_.fabrics;
  }

  void SetNode(const NodePtr& node);
  void RemoveNode(const std::string& name);
  // A pod has changed: what it held, and what it holds now; null: nothing. `old` is the pointer given before.
  void ChangePod(const UsePtr& old, const UsePtr& now);
  // All bookings of this job, in place of those given before.
  void SetClaims(const std::string& job_uid, std::vector<Booking> claims);

  // Up to date; stays as it is until the next call of any member.
  const Yard& Current();

 private:
  // What is known of one node's place, whether the node itself is known or not.
  struct Seat {
    NodePtr node;  // null: not (or not yet) there
    std::vector<UsePtr> pods;
    std::map<std::string, std::vector<Booking>> claims;  // by job UID

    bool Empty() const { return node == nullptr && pods.empty() && claims.empty(); }
  };
  void Touch(const std::string& name);
  void DropIfEmpty(const std::string& name);
  void Recount(YardNode& node, const Seat& seat) const;

  const YardOptions options_;
  ProductNames products_;
  LevelCensus census_;
  std::unordered_map<std::string, Seat> seats_;                      // by the node's name
  std::unordered_map<std::string, std::set<std::string>> claim_of_;  // job UID -> nodes with its claims
  Yard yard_;
  bool rearrange_ = false;       // nodes came, went or moved in the order of ranks
  std::set<std::string> stale_;  // nodes to be worked out again
};

}  // namespace trainyard::placement
