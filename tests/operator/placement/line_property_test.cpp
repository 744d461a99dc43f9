// Random lines: what must hold of each of them, and of a whole run of the queue. The seed is printed; TRAINYARD_SEED
// repeats it.
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "tests/operator/placement/line_fixture.h"
#include "tests/operator/placement/seed.h"

namespace trainyard::placement {
namespace {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t Below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  bool Chance(int percent) { return Below(100) < percent; }

 private:
  std::mt19937_64 engine_;
};

// Fills some nodes with running gangs, and lets others wait.
Scene RandomScene(Random& random) {
  Scene scene(static_cast<int>(2 + random.Below(8)));
  std::map<std::string, int64_t> free;
  for (const api::NodeSnapshot& node : scene.snapshots) {
    free[node.name] = 8;
    if (!random.Chance(15)) continue;
    const int64_t foreign = 1 + random.Below(8);
    scene.pods.push_back(ForeignPod(node.name, foreign));
    free[node.name] -= foreign;
  }
  for (int64_t i = 0; i < 12; ++i) {
    const int64_t per_node = int64_t{1} << random.Below(4);
    std::vector<std::pair<std::string, int64_t>> holds;
    const size_t pods = static_cast<size_t>(1 + random.Below(3));
    for (auto& [node, left] : free) {
      if (left < per_node || holds.size() == pods || random.Chance(40)) continue;
      holds.emplace_back(node, per_node);
      left -= per_node;
    }
    if (holds.empty()) continue;
    RunningGang& gang = scene.Runs("r" + std::to_string(i), holds, 10 * random.Below(4));
    if (random.Chance(60)) gang.expected_end = scene.now + std::chrono::minutes(random.Below(600) - 30);
    gang.saved_at = scene.now - std::chrono::minutes(random.Below(300));
    gang.placed_at = scene.now - std::chrono::minutes(300 + random.Below(300));
    gang.stopping = random.Chance(10);
    gang.preemptible = !random.Chance(10);
  }
  for (int64_t i = 0; i < 1 + random.Below(10); ++i) {
    const int64_t per_node = int64_t{1} << random.Below(4);
    WaitingGang& gang =
        scene.Waits("w" + std::to_string(i), per_node * (1 + random.Below(4)), per_node, 10 * random.Below(5));
    gang.may_preempt = !random.Chance(20);
    if (random.Chance(50)) gang.estimate = std::chrono::minutes(1 + random.Below(600));
    if (random.Chance(20)) gang.request.level = "rack";
    gang.request.level_required = random.Chance(50);
  }
  return scene;
}

bool FitsWithout(const Yard& yard, GangRequest request, const std::map<std::string, int64_t>& held,
                 const std::set<std::string>& gone) {
  request.held = held;
  request.released = gone;
  return FindPlace(yard, request).has_value();
}

void CheckLine(const Scene& scene, const Line& line) {
  const Yard yard = scene.Build();
  std::map<std::string, const WaitingGang*> waiting;
  for (const WaitingGang& gang : scene.waiting) waiting[gang.uid] = &gang;
  std::map<std::string, const RunningGang*> running;
  std::set<std::string> stopping, all;
  for (const RunningGang& gang : scene.running) {
    running[gang.uid] = &gang;
    all.insert(gang.uid);
    if (gang.Leaves(scene.now)) stopping.insert(gang.uid);
  }
  std::map<std::string, int64_t> going;
  std::set<std::string> stopped;
  ASSERT_EQ(line.entries.size(), scene.waiting.size());
  for (const LineEntry& entry : line.entries) {
    SCOPED_TRACE(entry.uid);
    const WaitingGang& gang = *waiting.at(entry.uid);
    const std::map<std::string, int64_t> held = line.HeldFor(entry.uid);
    EXPECT_EQ(entry.fits, FitsWithout(yard, gang.request, held, {}));
    if (entry.fits) {
      EXPECT_EQ(Sum(entry.reserved), gang.request.gpus);
      for (const auto& [node, gpus] : entry.reserved) going[node] += gpus;
    }
    // Nothing is kept that is not free, or more than is asked for.
    for (const auto& [node, gpus] : entry.reserved) {
      EXPECT_LE(gpus, gang.request.per_node);
      EXPECT_LE(gpus, yard.Find(node)->free);
    }
    if (entry.never) {
      EXPECT_FALSE(FitsWithout(yard, gang.request, {}, all));
      EXPECT_TRUE(entry.reserved.empty());
    }
    if (!entry.victims.empty()) {
      EXPECT_TRUE(gang.may_preempt);
      // Where a head is to start nobody stops for one behind it.
      std::map<std::string, int64_t> beside = going;
      for (const size_t head : line.heads) {
        const LineEntry& other = line.entries[head];
        if (other.position >= entry.position) break;
        for (const std::string& node : other.placement->nodes) beside[node] += other.per_node;
      }
      EXPECT_FALSE(FitsWithout(yard, gang.request, beside, stopping)) << "those that stop are enough";
      std::set<std::string> gone = stopping;
      gone.insert(stopped.begin(), stopped.end());
      for (const std::string& victim : entry.victims) {
        EXPECT_LT(running.at(victim)->priority, gang.priority);
        EXPECT_TRUE(running.at(victim)->preemptible && !running.at(victim)->stopping);
        EXPECT_TRUE(stopped.insert(victim).second) << "stops twice";
        gone.insert(victim);
      }
      EXPECT_TRUE(FitsWithout(yard, gang.request, beside, gone)) << "stop for nothing";
      for (const std::string& victim : entry.victims) {
        std::set<std::string> fewer = gone;
        fewer.erase(victim);
        EXPECT_FALSE(FitsWithout(yard, gang.request, beside, fewer)) << victim << " stops without need";
      }
    }
  }
  // Who is about to start has room beside all the others who are.
  for (const auto& [node, gpus] : going) EXPECT_LE(gpus, yard.Find(node)->free) << node;
}

TEST(LineProperty, HoldsOfRandomLines) {
  const uint64_t seed = Seed();
  int preempting = 0, reserving = 0, never = 0;
  for (uint64_t i = 0; i < 1500; ++i) {
    SCOPED_TRACE("seed " + std::to_string(seed + i));
    Random random(seed + i);
    Scene scene = RandomScene(random);
    const Line line = scene.Form();
    CheckLine(scene, line);
    // The same from whatever order it is told.
    std::reverse(scene.waiting.begin(), scene.waiting.end());
    std::reverse(scene.running.begin(), scene.running.end());
    const Line again = scene.Form();
    for (size_t k = 0; k < line.entries.size(); ++k) {
      EXPECT_EQ(again.entries[k].uid, line.entries[k].uid);
      EXPECT_EQ(again.entries[k].reserved, line.entries[k].reserved);
      EXPECT_EQ(again.entries[k].victims, line.entries[k].victims);
    }
    for (const LineEntry& entry : line.entries) {
      preempting += entry.victims.empty() ? 0 : 1;
      reserving += !entry.fits && !entry.reserved.empty() ? 1 : 0;
      never += entry.never ? 1 : 0;
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(preempting, 20);
  EXPECT_GT(reserving, 100);
  EXPECT_GT(never, 20);
}

// A day of a cluster in which every estimate is right: whoever fits starts, and runs as long as he said.
struct Day {
  explicit Day(Random& random) : scene(static_cast<int>(3 + random.Below(6))) {}

  void Start(const LineEntry& entry, TimePoint now) {
    const auto gang =
        std::find_if(scene.waiting.begin(), scene.waiting.end(), [&](const auto& g) { return g.uid == entry.uid; });
    RunningGang& runs = scene.running.emplace_back();
    runs.uid = gang->uid;
    runs.name = gang->name;
    runs.placed_at = runs.saved_at = now;
    runs.expected_end = now + *gang->estimate;
    for (const std::string& node : entry.placement->nodes) {
      runs.holds.push_back({gang->uid, 1, node, gang->request.per_node});
    }
    scene.waiting.erase(gang);
  }

  Scene scene;
};

TEST(LineProperty, NobodyBehindDelaysTheHeadAndNobodyStarves) {
  const uint64_t seed = Seed();
  int64_t backfilled = 0;
  for (uint64_t i = 0; i < 100; ++i) {
    SCOPED_TRACE("seed " + std::to_string(seed + i));
    Random random(seed + i);
    Day day(random);
    Scene& scene = day.scene;
    TimePoint now = scene.now;
    const auto nodes = static_cast<int64_t>(scene.snapshots.size());
    // Small ones come all the time; a large one comes once, and needs the whole yard.
    std::optional<TimePoint> promised;
    bool started = false;
    int64_t next = 0;
    for (int step = 0; step < 150 && !started; ++step) {
      now += std::chrono::minutes(1 + random.Below(20));
      std::erase_if(scene.running, [&](const RunningGang& gang) { return *gang.expected_end <= now; });
      for (int64_t k = random.Below(4); k > 0; --k) {
        const int64_t gpus = int64_t{1} << random.Below(4);
        WaitingGang& gang = scene.Waits("s" + std::to_string(1000 + next++), gpus, gpus);
        gang.since = now;
        gang.estimate = std::chrono::minutes(5 + random.Below(200));
      }
      if (step == 20) {
        WaitingGang& gang = scene.Waits("large", 8 * nodes, 8);
        gang.since = now;
        gang.estimate = std::chrono::minutes(60);
      }
      // Whoever fits starts, one after the other, the line formed anew each time.
      while (true) {
        const Line line = FormLine(scene.Build(), scene.waiting, scene.running, now);
        const LineEntry* head = line.Find("large");
        if (head != nullptr && head->position == 1 && !head->fits) {
          ASSERT_TRUE(head->expected_start);
          if (promised) {
            ASSERT_LE(*head->expected_start, *promised) << "delayed";
          }
          promised = head->expected_start;
        }
        std::vector<const LineEntry*> fit;
        for (const LineEntry& entry : line.entries) {
          if (entry.fits) fit.push_back(&entry);
        }
        if (fit.empty()) break;
        const LineEntry& chosen = *fit[static_cast<size_t>(random.Below(static_cast<int64_t>(fit.size())))];
        if (head != nullptr && chosen.position > head->position) ++backfilled;
        started = started || chosen.uid == "large";
        day.Start(chosen, now);
      }
    }
    ASSERT_TRUE(started) << "the large gang starved";
  }
  EXPECT_GT(backfilled, 100) << "small ones are not held up for nothing";
}

}  // namespace
}  // namespace trainyard::placement
