#include "operator/controller/plan_memo.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace trainyard::controller {
namespace {

// An elastic job tries several counts per look; older questions than so many are not asked again soon.
constexpr size_t kPerJob = 32;

}  // namespace

bool PlanMemo::Entry::SameQuestion(const Entry& other) const {
  auto tie = [](const Entry& e) { return std::tie(e.uid, e.generation, e.count, e.measured, e.supply, e.catalogue); };
  return tie(*this) == tie(other);
}

Result<api::PlanStatus> PlanMemo::Plan(const api::TrainingJob& job, const std::vector<sizing::ProductSupply>& supply,
                                       std::shared_ptr<const sizing::Catalogue> catalogue) {
  Entry entry{.uid = job.meta.uid,
              .generation = job.meta.generation,
              .count = job.spec.gpus.count,
              .measured = job.status.measured,
              .supply = supply,
              .catalogue = catalogue};
  const std::string key = job.meta.ns + "/" + job.meta.name;
  {
    std::lock_guard lock(mutex_);
    for (const Entry& known : entries_[key]) {
      if (known.SameQuestion(entry)) return *known.answer;
    }
    ++made_;
  }
  entry.answer = plan_(job, supply, std::move(catalogue));
  const Result<api::PlanStatus> answer = *entry.answer;
  std::lock_guard lock(mutex_);
  std::deque<Entry>& known = entries_[key];
  known.push_front(std::move(entry));
  if (known.size() > kPerJob) known.pop_back();
  return answer;
}

void PlanMemo::Forget(const std::string& ns_and_name) {
  std::lock_guard lock(mutex_);
  entries_.erase(ns_and_name);
}

int64_t PlanMemo::Made() const {
  std::lock_guard lock(mutex_);
  return made_;
}

}  // namespace trainyard::controller
