#include "tests/bench/placement_line.h"

#include <chrono>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>

#include "operator/placement/line.h"
#include "operator/placement/live_yard.h"
#include "operator/placement/place.h"

namespace trainyard::bench {
namespace {

constexpr int64_t kNodes = 500, kPerRack = 16, kGpus = 8;
constexpr TimePoint kNow = TimePoint(std::chrono::hours(24));

class Scene {
 public:
  Scene(Burst burst, int64_t waiting) : random_(7), live_(Options()) {
    for (int64_t i = 0; i < kNodes; ++i) live_.SetNode(Node(i));
    if (burst == Burst::kWaits) Run();
    for (int64_t i = 0; i < waiting; ++i) Wait(burst, i);
    live_.Current();
  }

  double Form() {
    return Milliseconds([&] {
      const placement::Line line = placement::FormLine(live_.Current(), waiting_, running_, kNow);
      fit_ = 0;
      for (const placement::LineEntry& entry : line.entries) fit_ += entry.fits ? 1 : 0;
    });
  }

  double PlaceEach() {
    int64_t placed = 0;
    const double spent = Milliseconds([&] {
      for (const placement::WaitingGang& gang : waiting_) {
        placed += placement::FindPlace(live_.Current(), gang.request) ? 1 : 0;
      }
    });
    // None stands in the way of another there.
    if (placed < fit_) throw std::runtime_error("fewer jobs fit alone than in line");
    return spent;
  }

 private:
  template <typename Work>
  static double Milliseconds(const Work& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  }

  static placement::YardOptions Options() {
    placement::YardOptions options;
    options.topology = placement::Topology::Of({{"rack", "example.com/rack"}});
    return options;
  }

  static std::shared_ptr<const api::NodeSnapshot> Node(int64_t i) {
    auto node = std::make_shared<api::NodeSnapshot>();
    node->name = "node-" + std::to_string(i);
    node->ready = true;
    node->labels = {{"nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"},
                    {"example.com/rack", "rack-" + std::to_string(i / kPerRack)}};
    node->allocatable = {{api::kGpuResource, kGpus}, {"cpu", 192000}, {"memory", int64_t{2} << 40}, {"pods", 110}};
    return node;
  }

  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  // The jobs of a day: see placement_day.cpp.
  placement::GangRequest Request() {
    placement::GangRequest request;
    request.per_node = Below(10) < 4 ? int64_t{1} << Below(3) : kGpus;
    request.gpus = request.per_node * (request.per_node < kGpus ? 1 : 1 + Below(16));
    request.products = {"H100-SXM"};
    request.pod_resources = {{"cpu", 4000 * request.per_node}, {"memory", request.per_node << 36}};
    return request;
  }

  void Run() {
    for (int64_t used = 0; used < kNodes * kGpus * 9 / 10;) {
      placement::GangRequest request = Request();
      const auto placed = placement::FindPlace(live_.Current(), request);
      if (!placed) return;
      placement::RunningGang& gang = running_.emplace_back();
      gang.uid = gang.name = "running-" + std::to_string(running_.size());
      for (const std::string& node : placed->nodes) gang.holds.push_back({gang.uid, 1, node, request.per_node});
      gang.placed_at = gang.saved_at = kNow - std::chrono::minutes(1 + Below(60));
      gang.expected_end = kNow + std::chrono::minutes(1 + Below(120));
      live_.SetClaims(gang.uid, gang.holds);
      used += request.gpus;
    }
  }

  void Wait(Burst burst, int64_t i) {
    placement::WaitingGang& gang = waiting_.emplace_back();
    gang.uid = gang.name = "waiting-" + std::to_string(i);
    gang.since = kNow - std::chrono::seconds(1);
    gang.estimate = std::chrono::minutes(1 + Below(120));
    gang.request = Request();
    if (burst == Burst::kFits) gang.request.gpus = gang.request.per_node = 1;
  }

  std::mt19937_64 random_;
  placement::LiveYard live_;
  std::vector<placement::RunningGang> running_;
  std::vector<placement::WaitingGang> waiting_;
  int64_t fit_ = 0;
};

}  // namespace

Row MeasureLine(const std::string& name, Burst burst, int64_t waiting, int pairs) {
  Scene scene(burst, waiting);
  std::vector<double> formed, each;
  for (int i = 0; i < pairs; ++i) {
    formed.push_back(scene.Form());
    each.push_back(scene.PlaceEach());
  }
  return FromPairs(name, "ms", formed, "place_each_alone", each, "lower", 0);
}

}  // namespace trainyard::bench
