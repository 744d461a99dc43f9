#include "operator/cli/top/top_view.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "operator/placement/line.h"
#include "operator/placement/place.h"

namespace trainyard::cli {
namespace {

using placement::Census;
using placement::DomainCensus;
using placement::ProductCensus;
using placement::Yard;
using placement::YardNode;

std::string Name(const controller::JobRecord& job) { return cluster::ToString(job.key); }

ProductView Product(const ProductCensus& census, const std::vector<std::string>& levels) {
  ProductView view{census.product, census.tally, {}};
  view.largest.push_back({"in a node", census.largest_in_node});
  if (!census.cliques.empty()) view.largest.push_back({"in an NVLink domain", census.largest_in_nvlink});
  for (size_t level = levels.size(); level-- > 0;) {
    const bool known = level < census.domains.size() && !census.domains[level].empty();
    if (known) view.largest.push_back({"in a " + levels[level], census.in_domain[level]});
  }
  view.largest.push_back({"anywhere", census.tally.largest_gang});
  return view;
}

void AddDomains(const ProductCensus& census, const std::vector<std::string>& levels, std::vector<DomainView>& out) {
  const size_t first = out.size();
  for (size_t level = 0; level < census.domains.size() && level < levels.size(); ++level) {
    for (const DomainCensus& domain : census.domains[level]) {
      out.push_back({levels[level], domain.path, census.product, domain.tally});
    }
  }
  // From a list per level to the tree: a domain, then what is in it.
  std::stable_sort(out.begin() + static_cast<ptrdiff_t>(first), out.end(), [](const auto& a, const auto& b) {
    return std::lexicographical_compare(a.path.begin(), a.path.end(), b.path.begin(), b.path.end(),
                                        placement::NaturalLess);
  });
  for (const DomainCensus& clique : census.cliques) {
    out.push_back({"NVLink", clique.path, census.product, clique.tally});
  }
}

// Who holds what on each node, as the yard counts it: our jobs by name, pods of others one by one.
class Holders {
 public:
  Holders(const ClusterView& cluster) {
    for (const controller::JobRecord& job : cluster.jobs) jobs_.emplace(job.uid, Name(job));
    for (const api::PodSnapshot& pod : cluster.pods) {
      const auto use = placement::UseOf(pod);
      if (use && use->gpus > 0 && use->job_uid.empty()) {
        others_[use->node].push_back({"pod " + pod.ns + "/" + pod.name, use->gpus});
      }
    }
  }

  std::vector<Holder> Of(const YardNode& node) const {
    std::vector<Holder> holders;
    for (const auto& [uid, gpus] : node.used_by_job) {
      const auto job = jobs_.find(uid);
      if (gpus > 0) holders.push_back({job != jobs_.end() ? job->second : "pods of a job that is gone", gpus});
    }
    if (const auto others = others_.find(node.name); others != others_.end()) {
      holders.insert(holders.end(), others->second.begin(), others->second.end());
    }
    std::sort(holders.begin(), holders.end(),
              [](const Holder& a, const Holder& b) { return a.gpus != b.gpus ? a.gpus > b.gpus : a.name < b.name; });
    return holders;
  }

 private:
  std::unordered_map<std::string, std::string> jobs_;            // UID -> name
  std::unordered_map<std::string, std::vector<Holder>> others_;  // by node
};

bool HasGpus(const YardNode& node) { return !node.product.empty() || node.usable > 0 || node.used > 0; }

// Why one of this place in the queue has not started; beyond the first ones only whose turn it is, for a placement of
// each of thousands would take its time.
constexpr int64_t kExplained = 100;

// The queue, by the rules that the operator decides by.
class Queue {
 public:
  Queue(const ClusterView& cluster, const Yard& yard, const lifecycle::Options& options, TimePoint now)
      : yard_(yard), now_(now) {
    std::vector<placement::RunningGang> running;
    for (const controller::JobRecord& job : cluster.jobs) {
      names_.emplace(job.uid, Name(job));
      if (!job.problem.empty() || !job.status_problem.empty()) continue;
      const auto named = lifecycle::FindPriority(cluster.priority_classes, job.job.spec.priority_class_name);
      const api::PriorityClass priority = named ? *named : api::PriorityClass();
      if (auto gang = lifecycle::WaitingOf(job.job, options, priority)) waiting_.emplace(job.uid, *std::move(gang));
      if (auto gang = lifecycle::RunningOf(job.job, named)) running.push_back(*std::move(gang));
    }
    std::vector<placement::WaitingGang> waiting;
    for (const auto& [uid, gang] : waiting_) waiting.push_back(gang);
    line_ = placement::FormLine(yard, waiting, running, now);
  }

  std::vector<QueueView> Views() const {
    std::vector<QueueView> views;
    for (const placement::LineEntry& entry : line_.entries) {
      QueueView view;
      view.position = static_cast<size_t>(entry.position);
      view.job = entry.name;
      view.priority = entry.priority;
      view.gpus = entry.gpus;
      view.per_node = entry.per_node;
      for (const std::string& product : entry.products) view.product += (view.product.empty() ? "" : "|") + product;
      view.since = entry.since;
      view.expected_start = entry.expected_start;
      for (const auto& [node, gpus] : entry.reserved) view.reserved += gpus;
      for (const std::string& uid : entry.victims) view.victims.push_back(NameOf(uid));
      view.why = Why(entry);
      views.push_back(std::move(view));
    }
    return views;
  }

 private:
  std::string NameOf(const std::string& uid) const {
    const auto name = names_.find(uid);
    return name == names_.end() ? uid : name->second;
  }

  std::string Why(const placement::LineEntry& entry) const {
    if (entry.fits) return "fits now: it starts as soon as an operator looks at it";
    std::string lacks;
    if (const auto gang = waiting_.find(entry.uid); gang != waiting_.end() && entry.position <= kExplained) {
      placement::GangRequest request = gang->second.request;
      request.held = line_.HeldFor(entry.uid);
      if (const auto placed = placement::Place(yard_, request); !placed) lacks = placed.error().message;
    }
    const std::string waits = placement::WhyWaits(line_, entry, now_);
    return lacks + (lacks.empty() || waits.empty() ? "" : "; ") + waits;
  }

  const Yard& yard_;
  const TimePoint now_;
  std::unordered_map<std::string, std::string> names_;  // UID -> ns/name
  std::map<std::string, placement::WaitingGang> waiting_;
  placement::Line line_;
};

}  // namespace

TopView Look(const ClusterView& cluster, const lifecycle::Options& options, TimePoint now,
             const api::Amounts& per_gpu) {
  std::vector<placement::Booking> claims;
  for (const controller::JobRecord& job : cluster.jobs) {
    claims.insert(claims.end(), job.bookings.begin(), job.bookings.end());
  }
  const Yard yard = Yard::Build(cluster.nodes, cluster.pods, claims, options.yard);

  TopView view{.now = now, .levels = yard.level_names(), .notes = cluster.notes};
  const Census census = placement::CountYard(yard, per_gpu);
  for (const ProductCensus& product : census.products) {
    view.products.push_back(Product(product, view.levels));
    AddDomains(product, view.levels, view.domains);
  }
  const Holders holders(cluster);
  for (const YardNode& node : yard.nodes()) {
    if (!HasGpus(node)) continue;
    view.nodes.push_back({node.name, node.product, node.path, node.clique, node.usable, node.used, node.free,
                          holders.Of(node), node.ineligible, node.oddity});
  }
  view.queue = Queue(cluster, yard, options, now).Views();
  return view;
}

}  // namespace trainyard::cli
