#include "tests/bench/placement_day.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <set>

#include "operator/placement/line.h"
#include "operator/placement/live_yard.h"
#include "operator/placement/place.h"
#include "tests/bench/report.h"

namespace trainyard::bench {
namespace {

using placement::Booking;
using placement::GangRequest;
using placement::Yard;
using placement::YardNode;

constexpr int kNodes = 640, kPerRack = 16, kGpus = 8;
constexpr double kWarmUp = 6 * 3600, kEnd = 30 * 3600;  // seconds
constexpr double kMeanHours = 1.0;

struct Job {
  std::string uid;
  double arrived = 0, hours = 0;
  double too_long = 1;  // its own estimate by its run time
  GangRequest request;

  double started = -1, ends = 0;
  std::vector<Booking> holds;
  int64_t racks = 0;
  bool Waits() const { return started < 0; }
};

// 40 % pods of 1, 2 or 4 GPUs, 60 % gangs of 1 to 16 whole nodes; run times are exponential, estimates up to half too
// long.
std::vector<Job> Arrivals(const DayOptions& options) {
  std::mt19937_64 random(options.seed);
  const auto below = [&random](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  const auto exponential = [&random](double mean) {
    return -mean * std::log1p(-static_cast<double>(random() >> 11) * 0x1p-53);
  };
  const double mean_gpus = 0.4 * 7 / 3 + 0.6 * 8.5 * kGpus;
  const double gap = 3600 * kMeanHours * mean_gpus / (options.load * kNodes * kGpus);
  std::vector<Job> jobs;
  for (double at = exponential(gap); at < kEnd; at += exponential(gap)) {
    Job& job = jobs.emplace_back();
    job.uid = "job-" + std::to_string(jobs.size());
    job.arrived = at;
    job.hours = std::max(1.0 / 60, exponential(kMeanHours));
    job.too_long = 1 + 0.5 * static_cast<double>(below(1000)) / 1000;
    job.request.job_uid = job.uid;
    if (below(10) < 4) {
      job.request.per_node = int64_t{1} << below(3);
      job.request.gpus = job.request.per_node;
    } else {
      job.request.per_node = kGpus;
      job.request.gpus = kGpus * (1 + below(16));
    }
  }
  return jobs;
}

std::string Rack(const YardNode& node) { return node.path.empty() ? node.name : node.path.back(); }

std::vector<std::shared_ptr<const api::NodeSnapshot>> Nodes() {
  std::vector<std::shared_ptr<const api::NodeSnapshot>> nodes;
  for (int i = 0; i < kNodes; ++i) {
    auto node = std::make_shared<api::NodeSnapshot>();
    node->name = "node-" + std::to_string(i);
    node->ready = true;
    // Names follow racks, which is as kind to first fit by name as can be.
    node->labels = {{"nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"},
                    {"example.com/rack", "rack-" + std::to_string(i / kPerRack)}};
    node->allocatable = {{api::kGpuResource, kGpus}};
    nodes.push_back(std::move(node));
  }
  return nodes;
}

// Nodes in the order in which a policy that knows no topology looks at them.
std::vector<std::string> TopologyBlind(const Yard& yard, const GangRequest& request, bool most_free_first) {
  std::vector<const YardNode*> able;
  for (const YardNode& node : yard.nodes()) {
    if (node.free >= request.per_node) able.push_back(&node);
  }
  std::sort(able.begin(), able.end(), [&](const YardNode* a, const YardNode* b) {
    if (most_free_first && a->free != b->free) return a->free > b->free;
    return placement::NaturalLess(a->name, b->name);
  });
  std::vector<std::string> nodes;
  const auto count = static_cast<size_t>(request.gpus / request.per_node);
  if (able.size() < count) return nodes;
  for (size_t i = 0; i < count; ++i) nodes.push_back(able[i]->name);
  return nodes;
}

class Play {
 public:
  explicit Play(const DayOptions& options) : options_(options), jobs_(Arrivals(options)), live_(YardOptions()) {
    for (const auto& node : Nodes()) live_.SetNode(node);
  }

  Day Run() {
    size_t next = 0;
    while (true) {
      const double arrival = next < jobs_.size() ? jobs_[next].arrived : kEnd;
      const double end = ends_.empty() ? kEnd : ends_.top().first;
      const double now = std::min(arrival, end);
      if (now >= kEnd) break;
      Advance(now);
      if (end <= arrival) {
        Stop(ends_.top().second);
        ends_.pop();
      } else {
        waiting_.push_back(next++);
      }
      StartWhoMay();
    }
    Advance(kEnd);
    return Sum();
  }

 private:
  static placement::YardOptions YardOptions() {
    placement::YardOptions options;
    options.topology = placement::Topology::Of({{"rack", "example.com/rack"}});
    return options;
  }

  void Advance(double now) {
    used_seconds_ += static_cast<double>(used_) * (std::max(now, kWarmUp) - std::max(now_, kWarmUp));
    now_ = now;
  }

  std::vector<std::string> Choose(const GangRequest& request) {
    const Yard& yard = live_.Current();
    if (options_.choice != Choice::kBestFit) {
      return TopologyBlind(yard, request, options_.choice == Choice::kSpread);
    }
    auto placed = placement::FindPlace(yard, request);
    return placed ? std::move(placed->nodes) : std::vector<std::string>();
  }

  void Start(size_t index, const std::vector<std::string>& nodes) {
    Job& job = jobs_[index];
    std::set<std::string> racks;
    for (const std::string& node : nodes) {
      racks.insert(Rack(*live_.Current().Find(node)));
      job.holds.push_back({job.uid, 1, node, job.request.per_node});
    }
    live_.SetClaims(job.uid, job.holds);
    for (const std::string& node : nodes) {
      if (live_.Current().Find(node)->used <= kGpus) continue;
      std::fprintf(stderr, "%s is given twice, to %s last: this day is void\n", node.c_str(), job.uid.c_str());
      std::exit(1);
    }
    running_.insert(index);
    job.racks = static_cast<int64_t>(racks.size());
    job.started = now_;
    job.ends = now_ + job.hours * 3600;
    ends_.push({job.ends, index});
    used_ += job.request.gpus;
  }

  void Stop(size_t index) {
    live_.SetClaims(jobs_[index].uid, {});
    running_.erase(index);
    used_ -= jobs_[index].request.gpus;
  }

  void StartWhoMay() {
    if (options_.queue == Queue::kLine) return StartByLine();
    while (!waiting_.empty()) {
      const std::vector<std::string> nodes = Choose(jobs_[waiting_.front()].request);
      if (nodes.empty()) return;
      Start(waiting_.front(), nodes);
      waiting_.pop_front();
    }
  }

  static TimePoint At(double seconds) { return TimePoint(Milliseconds(static_cast<int64_t>(seconds * 1000))); }

  // As the operator does it: who fits starts where the line has put him.
  void StartByLine() {
    std::vector<placement::WaitingGang> waiting;
    std::map<std::string, size_t> index_of;
    for (const size_t index : waiting_) {
      const Job& job = jobs_[index];
      placement::WaitingGang& gang = waiting.emplace_back();
      gang.uid = gang.name = job.uid;
      gang.since = At(job.arrived);
      gang.estimate = Milliseconds(static_cast<int64_t>(job.hours * job.too_long * 3'600'000));
      gang.request = job.request;
      index_of[job.uid] = index;
    }
    std::vector<placement::RunningGang> running;
    for (const size_t index : running_) {
      const Job& job = jobs_[index];
      placement::RunningGang& gang = running.emplace_back();
      gang.uid = gang.name = job.uid;
      gang.holds = job.holds;
      gang.placed_at = gang.saved_at = At(job.started);
      gang.expected_end = At(job.started + job.hours * job.too_long * 3600);
    }
    const placement::Line line = placement::FormLine(live_.Current(), waiting, running, At(now_));
    for (const placement::LineEntry& entry : line.entries) {
      if (!entry.fits || !entry.placement) continue;
      const size_t index = index_of.at(entry.uid);
      // A claim looks at the ledger again.
      const Yard& yard = live_.Current();
      const auto free = [&](const std::string& node) { return CanTake(yard, *yard.Find(node), jobs_[index].request); };
      if (!std::all_of(entry.placement->nodes.begin(), entry.placement->nodes.end(), free)) continue;
      Start(index, entry.placement->nodes);
      waiting_.erase(std::find(waiting_.begin(), waiting_.end(), index));
    }
  }

  Day Sum() const {
    Day day;
    day.utilisation = used_seconds_ / (static_cast<double>(kNodes) * kGpus * (kEnd - kWarmUp));
    std::vector<double> small, medium, large;
    double gangs = 0, in_one = 0, racks = 0, waits = 0;
    for (const Job& job : jobs_) {
      if (job.arrived < kWarmUp) continue;
      ++day.arrived;
      if (job.Waits()) ++day.not_started;
      const double wait = ((job.Waits() ? kEnd : job.started) - job.arrived) / 60;
      waits += wait;
      const int64_t nodes = job.request.gpus / job.request.per_node;
      (job.request.per_node < kGpus ? small : nodes <= 4 ? medium : large).push_back(wait);
      if (job.Waits() || nodes < 2) continue;
      ++gangs;
      in_one += job.racks == 1 ? 1 : 0;
      racks += static_cast<double>(job.racks);
    }
    day.one_rack_share = in_one / std::max(1.0, gangs);
    day.racks_per_gang = racks / std::max(1.0, gangs);
    day.wait_small = Quantile(small, 0.95);
    day.wait_medium = Quantile(medium, 0.95);
    day.wait_large = Quantile(large, 0.95);
    day.wait_mean = waits / static_cast<double>(std::max<int64_t>(1, day.arrived));
    return day;
  }

  using End = std::pair<double, size_t>;  // when, whose
  const DayOptions options_;
  std::vector<Job> jobs_;
  placement::LiveYard live_;
  std::deque<size_t> waiting_;  // in order of arrival
  std::set<size_t> running_;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  double now_ = 0, used_seconds_ = 0;
  int64_t used_ = 0;
};

}  // namespace

Day PlayDay(const DayOptions& options) { return Play(options).Run(); }

}  // namespace trainyard::bench
