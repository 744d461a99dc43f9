// The yard that follows the cluster against the one built from nothing, over random changes.
#include "operator/placement/live_yard.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "tests/operator/placement/seed.h"
#include "tests/operator/placement/yard_fixture.h"

namespace trainyard::placement {
namespace {

std::string Text(const YardNode& node) {
  std::string text = node.name + " " + node.product + " " + node.clique + " used " + std::to_string(node.used) +
                     " free " + std::to_string(node.free) + " of " + std::to_string(node.usable) + " " +
                     node.ineligible + " " + node.oddity + " link " + std::to_string(static_cast<int>(node.link)) +
                     " island " + std::to_string(node.island);
  for (const api::Taint& taint : node.taints) text += " " + TaintText(taint);
  for (const std::string& step : node.path) text += " /" + step;
  for (const auto& [resource, amount] : node.free_resources) text += " " + resource + "=" + std::to_string(amount);
  for (const auto& [job, gpus] : node.used_by_job) text += " " + job + ":" + std::to_string(gpus);
  for (const auto& [job, resources] : node.resources_by_job) {
    for (const auto& [resource, amount] : resources) text += " " + job + "." + resource + "=" + std::to_string(amount);
  }
  return text;
}

// The packed numbers, and whether they are those of the nodes.
std::string Packed(const Yard& yard) {
  std::string text;
  for (size_t i = 0; i < yard.nodes().size(); ++i) {
    const YardIndex::Slot& slot = yard.index().slots()[i];
    EXPECT_EQ(slot.product, yard.index().Product(yard.nodes()[i].product));
    text += std::to_string(slot.usable) + " " + std::to_string(slot.free) + " " + std::to_string(slot.linked) +
            (slot.eligible ? " eligible" : "");
    for (const int64_t amount : slot.resources) text += " " + std::to_string(amount);
    for (size_t level = 0; level < yard.index().depth(); ++level) {
      text += " /" + std::to_string(yard.index().Domains(level)[i]);
    }
    text += "\n";
  }
  for (int job = 0; job < 3; ++job) {
    std::vector<uint32_t> nodes = yard.index().NodesOf("job-" + std::to_string(job));
    std::sort(nodes.begin(), nodes.end());
    for (const uint32_t node : nodes) text += " " + std::to_string(node);
    text += "\n";
  }
  return text;
}

std::string Text(const Yard& yard) {
  std::string text = "levels " + std::to_string(yard.path_levels()) + "\n";
  for (const TopologyLevel& level : yard.levels()) text += level.name + "=" + level.key + "\n";
  for (const YardNode& node : yard.nodes()) text += Text(node) + "\n";
  return text;
}

void EqualsTheBuiltOne(const YardOptions& options) {
  const uint64_t seed = Seed();
  SCOPED_TRACE("TRAINYARD_SEED=" + std::to_string(seed));
  std::mt19937 random(static_cast<std::mt19937::result_type>(seed));
  const auto below = [&](int limit) { return static_cast<int>(random() % static_cast<unsigned>(limit)); };

  LiveYard live(options);
  std::map<std::string, api::NodeSnapshot> nodes;
  std::map<std::string, api::PodSnapshot> pods;
  std::map<std::string, LiveYard::UsePtr> uses;
  std::map<std::string, std::vector<Booking>> claims;
  const auto node_name = [&] { return "node-" + std::to_string(below(12)); };

  for (int step = 0; step < 3000; ++step) {
    switch (below(6)) {
      case 0: {
        const std::string name = node_name();
        if (below(3) == 0) {
          nodes.erase(name);
          live.RemoveNode(name);
          break;
        }
        api::NodeSnapshot node = MakeNode(name, below(9), below(4) == 0 ? "" : "rack-" + std::to_string(below(3)));
        node.unschedulable = below(5) == 0;
        if (below(4) == 0) node.taints = {{"team", std::to_string(below(2)), "NoSchedule"}};
        if (below(4) == 0) node.labels["fabric.topograph.run/tier-0"] = "leaf-" + std::to_string(below(2));
        if (below(4) == 0) node.labels["fabric.topograph.run/tier-1"] = "spine-" + std::to_string(below(2));
        if (below(3) == 0) node.labels["topology.kubernetes.io/zone"] = "zone-" + std::to_string(below(2));
        if (below(6) == 0) node.annotations["trainyard.dev/gpu-links"] = below(3) == 0 ? "0-1/" : "0-1/2-3/4-7";
        if (below(6) == 0) node.labels["nvidia.com/gpu.memory"] = below(2) == 0 ? "many" : "80000";
        node.allocatable["cpu"] = 1000 * (1 + below(64));
        node.allocatable["pods"] = 110;
        if (below(6) == 0) node.labels["nvidia.com/gpu.clique"] = "clique." + std::to_string(below(2));
        nodes[name] = node;
        live.SetNode(std::make_shared<const api::NodeSnapshot>(node));
        break;
      }
      case 1:
      case 2:
      case 3: {
        const std::string name = "pod-" + std::to_string(below(40));
        LiveYard::UsePtr now;
        if (below(4) == 0) {
          pods.erase(name);
        } else {
          api::PodSnapshot pod = below(2) == 0
                                     ? ForeignPod(below(5) == 0 ? "" : node_name(), below(4))
                                     : OurPod("job-" + std::to_string(below(3)), below(3), node_name(), below(4));
          pod.name = name;
          pod.requests["cpu"] = below(3000);
          if (below(6) == 0) pod.phase = api::PodPhase::kSucceeded;
          pods[name] = pod;
          if (auto use = UseOf(pod)) now = std::make_shared<const PodUse>(*std::move(use));
        }
        live.ChangePod(uses[name], now);
        uses[name] = now;
        break;
      }
      case 4: {
        const std::string job = "job-" + std::to_string(below(3));
        std::vector<Booking> bookings;
        for (int i = below(4); i > 0; --i) bookings.push_back({job, below(3), node_name(), below(5)});
        claims[job] = bookings;
        live.SetClaims(job, bookings);
        break;
      }
      default: {
        std::vector<api::NodeSnapshot> all_nodes;
        for (const auto& [name, node] : nodes) all_nodes.push_back(node);
        std::vector<api::PodSnapshot> all_pods;
        for (const auto& [name, pod] : pods) all_pods.push_back(pod);
        std::vector<Booking> all_claims;
        for (const auto& [job, bookings] : claims)
          all_claims.insert(all_claims.end(), bookings.begin(), bookings.end());
        const Yard built = Yard::Build(all_nodes, all_pods, all_claims, options);
        const Yard& current = live.Current();
        ASSERT_EQ(Text(current), Text(built)) << "step " << step;
        ASSERT_EQ(Packed(current), Packed(built)) << "step " << step;
        for (const auto& [name, node] : nodes) ASSERT_NE(current.Find(name), nullptr);
      }
    }
  }
}

TEST(LiveYard, EqualsTheYardBuiltFromNothingAfterAnyChanges) { EqualsTheBuiltOne(kRackOptions); }

TEST(LiveYard, EqualsTheYardBuiltFromNothingWhenItsLevelsComeAndGo) { EqualsTheBuiltOne(YardOptions()); }

TEST(LiveYard, KnowsTheProductsOfTheCatalogueItIsGiven) {
  auto catalogue = sizing::Catalogue::FromYaml(
      "products: [{name: X1, aliases: [acme-x1], memoryMiB: 65536, bf16TFLOPS: 400, link: NVSwitch, nvlinkGBps: 800}]",
      "x1.yaml");
  ASSERT_TRUE(catalogue) << catalogue.error().message;
  const api::NodeSnapshot node = MakeNode("node-1", 8, "", "z", "acme-x1");
  YardOptions options;
  EXPECT_FALSE(Yard::Build({node}, {}, {}, options).nodes()[0].known) << "the compiled-in one does not";

  options.catalogue = std::make_shared<const sizing::Catalogue>(*catalogue);
  LiveYard live(options);
  live.SetNode(std::make_shared<const api::NodeSnapshot>(node));
  const Yard built = Yard::Build({node}, {}, {}, options);
  for (const Yard* yard : {&live.Current(), &built}) {
    EXPECT_TRUE(yard->nodes()[0].known);
    EXPECT_EQ(yard->nodes()[0].product, "X1");
    EXPECT_EQ(yard->nodes()[0].memory_mib, 65536);
    EXPECT_EQ(yard->nodes()[0].link, LinkClass::kNvSwitchNode);
    GangRequest request = Want(8, 8);
    request.products = {"acme-x1"};
    auto placed = Place(*yard, request);
    EXPECT_TRUE(placed) << placed.error().message;
  }
}

}  // namespace
}  // namespace trainyard::placement
