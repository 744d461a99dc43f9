// Remembers the plans of jobs, so that one that waits is not planned anew at every look: only when its generation, the
// count that is tried, what was measured of it, or what the cluster has changes. Thread-safety: all members from any
// thread; planning itself runs outside the lock.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "operator/lifecycle/lifecycle.h"

namespace trainyard::controller {

class PlanMemo : public lifecycle::Planner {
 public:
  using Function = std::function<Result<api::PlanStatus>(
      const api::TrainingJob&, const std::vector<sizing::ProductSupply>&, std::shared_ptr<const sizing::Catalogue>)>;
  // `plan` must give the same answer to the same question.
  explicit PlanMemo(Function plan = sizing::PlanJob) : plan_(std::move(plan)) {}

  Result<api::PlanStatus> Plan(const api::TrainingJob& job, const std::vector<sizing::ProductSupply>& supply,
                               std::shared_ptr<const sizing::Catalogue> catalogue) override;
  void Forget(const std::string& ns_and_name);
  // Plans made, not remembered.
  int64_t Made() const;

 private:
  struct Entry {
    std::string uid;
    int64_t generation = 0;
    int64_t count = 0;
    std::optional<api::PlanCorrections> measured;
    std::vector<sizing::ProductSupply> supply;
    std::shared_ptr<const sizing::Catalogue> catalogue;
    std::optional<Result<api::PlanStatus>> answer;

    bool SameQuestion(const Entry& other) const;
  };

  const Function plan_;
  mutable std::mutex mutex_;  // guards what follows
  std::map<std::string, std::deque<Entry>> entries_;
  int64_t made_ = 0;
};

}  // namespace trainyard::controller
