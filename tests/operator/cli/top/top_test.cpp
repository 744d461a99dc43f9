// What `trainyard top` makes of a cluster, and how it shows that.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "operator/cli/exit_codes.h"
#include "operator/cli/top/read_cluster.h"
#include "operator/cli/top/render.h"
#include "operator/cli/top/top_command.h"
#include "operator/cli/top/top_view.h"
#include "tests/operator/cli/top/scenes.h"

namespace trainyard::cli {
namespace {

using cluster::Kind;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

lifecycle::Options Rules() { return {}; }

TopView ViewOf(ListedObjects objects) {
  ListingCluster cluster(objects);
  const auto seen = ReadCluster(cluster);
  EXPECT_TRUE(seen.has_value()) << seen.error().message;
  return Look(*seen, Rules(), SceneTime());
}

const NodeView& NodeOf(const TopView& view, const std::string& name) {
  const auto found = std::find_if(view.nodes.begin(), view.nodes.end(), [&](const auto& n) { return n.name == name; });
  EXPECT_NE(found, view.nodes.end()) << name;
  return *found;
}

std::string Held(const NodeView& node) {
  std::string text;
  for (const Holder& holder : node.held_by) text += holder.name + "=" + std::to_string(holder.gpus) + " ";
  return text;
}

class Program {
 public:
  explicit Program(ListedObjects objects) : objects_(std::move(objects)) {}
  // Exit code of "trainyard top ARGUMENTS".
  int Run(const std::string& arguments) {
    out.str("");
    err.str("");
    int exit_code = -1;
    CLI::App app("trainyard");
    AddTopCommand(app, exit_code,
                  {out, err, clock_, [this](const TopFlags& flags) -> Result<std::unique_ptr<cluster::Cluster>> {
                     used = flags;
                     return std::make_unique<ListingCluster>(objects_);
                   }});
    try {
      app.parse("top " + arguments);
    } catch (const CLI::ParseError& error) {
      return app.exit(error, out, err);
    }
    return exit_code;
  }

  std::ostringstream out, err;
  TopFlags used;

 private:
  ListedObjects objects_;
  FakeClock clock_{SceneTime()};
};

TEST(TopView, CountsGpusByProduct) {
  const TopView view = ViewOf(SceneOfTheDocs());
  ASSERT_EQ(view.products.size(), 4u);
  const auto h100 = std::find_if(view.products.begin(), view.products.end(),
                                 [](const auto& product) { return product.product == "H100-SXM"; });
  ASSERT_NE(h100, view.products.end());
  // 12 nodes with 95 GPUs; one, which has lost a GPU, is cordoned. Three nodes, half of one, and one GPU are in use.
  EXPECT_EQ(h100->tally.nodes, 12);
  EXPECT_EQ(h100->tally.unfit, 7);
  EXPECT_EQ(h100->tally.used, 24 + 4 + 1);
  EXPECT_EQ(h100->tally.free, 95 - 7 - 29);
  EXPECT_EQ(h100->tally.stranded, 4 + 7);
}

TEST(TopView, NodesSayWhoHoldsThemAndWhyTheyTakeNothing) {
  const TopView view = ViewOf(SceneOfTheDocs());
  EXPECT_EQ(Held(NodeOf(view, "h100-1-1")), "default/pretrain=8 ");
  EXPECT_EQ(Held(NodeOf(view, "h100-2-1")), "vision/finetune=4 ");
  EXPECT_EQ(Held(NodeOf(view, "h100-2-2")), "pod research/notebook-0=1 ");
  EXPECT_EQ(NodeOf(view, "h100-2-4").unfit, "cordoned");
  EXPECT_THAT(NodeOf(view, "l4-2").unfit, HasSubstr("shared"));
  EXPECT_EQ(NodeOf(view, "h100-2-4").usable, 7);
}

TEST(TopView, DomainsFormATreeOfEachProduct) {
  const TopView view = ViewOf(SceneOfTheDocs());
  std::vector<std::string> h100;
  for (const DomainView& domain : view.domains) {
    if (domain.product != "H100-SXM") continue;
    std::string path;
    for (const std::string& part : domain.path) path += "/" + part;
    h100.push_back(path);
  }
  EXPECT_THAT(h100, ElementsAre("/hall-a", "/hall-a/rack-1", "/hall-a/rack-2", "/hall-b", "/hall-b/rack-3"));
  EXPECT_EQ(view.levels.size(), 2u);
}

TEST(TopView, TheQueueIsTheOneThatTheOperatorForms) {
  ListedObjects scene = SceneOfTheDocs();
  scene.Add(Kind::kTrainingJob, WaitingJob("default", "later", 48, 8, "H100-SXM", 1));
  scene.Add(Kind::kTrainingJob, WaitingJob("default", "urgent", 64, 8, "H100-SXM", 0.5, "production"));
  nlohmann::json suspended = WaitingJob("default", "suspended", 8, 8, "H100-SXM", 9);
  suspended["spec"]["suspend"] = true;
  scene.Add(Kind::kTrainingJob, suspended);
  const TopView view = ViewOf(scene);
  std::vector<std::string> order;
  for (const QueueView& entry : view.queue) order.push_back(entry.job + ":" + std::to_string(entry.priority));
  EXPECT_THAT(order, ElementsAre("default/urgent:1000", "vision/detector:1000", "default/large:0", "default/later:0"));
  for (const QueueView& entry : view.queue) EXPECT_NE(entry.why, "") << entry.job;
}

TEST(TopText, FiveThousandNodesStayReadable) {
  const TopView view = ViewOf(LargeScene(320, 16));
  EXPECT_EQ(view.nodes.size(), 5120u);
  const std::string text = TopText(view, {});
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 60) << text;
  EXPECT_THAT(text, HasSubstr("(each of 2)"));
  const std::string wide = TopText(view, {.wide = true});
  EXPECT_GT(std::count(wide.begin(), wide.end(), '\n'), 320);
  const std::string nodes = TopText(view, {.nodes = true});
  EXPECT_EQ(std::count(nodes.begin(), nodes.end(), '\n'), 5120 + 3);
}

TEST(TopText, AnEmptyClusterIsSaidToBeOne) {
  const std::string text = TopText(ViewOf({}), {});
  EXPECT_EQ(text, "0 nodes with GPUs; 0 GPUs on fit nodes: 0 used, 0 free; no job waits\n");
}

TEST(TopText, ALongQueueIsCutAndSaysWhereTheRestIs) {
  ListedObjects scene = SceneOfTheDocs();
  for (int i = 0; i < 40; ++i) {
    scene.Add(Kind::kTrainingJob, WaitingJob("default", "many-" + std::to_string(i), 96, 8, "H100-SXM", 1));
  }
  const TopView view = ViewOf(scene);
  EXPECT_THAT(TopText(view, {}), HasSubstr("and 22 jobs more: --queue shows all\n"));
  const std::string queue = TopText(view, {.queue = true});
  EXPECT_THAT(queue, testing::StartsWith(" #"));
  EXPECT_THAT(queue, HasSubstr("many-39"));
  EXPECT_THAT(queue, Not(HasSubstr("more: ")));
}

TEST(TopJson, HasWhatTextHasAndMore) {
  Program program(SceneOfTheDocs());
  ASSERT_EQ(program.Run("-o json"), kExitOk) << program.err.str();
  const json out = json::parse(program.out.str());
  EXPECT_EQ(out["now"], "2026-03-02T12:00:00Z");
  EXPECT_EQ(out["products"].size(), 4u);
  for (const json& product : out["products"]) {
    EXPECT_EQ(product["gpus"].get<int64_t>(), product["used"].get<int64_t>() + product["free"].get<int64_t>());
    EXPECT_EQ(product["largestGang"].back()["scope"], "anywhere");
  }
  EXPECT_EQ(out["nodes"].size(), 18u);
  EXPECT_EQ(out["queue"].size(), 2u);
  EXPECT_EQ(out["queue"][0]["job"], "vision/detector");
  EXPECT_EQ(out["queue"][0]["priority"], 1000);
  EXPECT_EQ(out["queue"][1]["since"], "2026-03-02T09:30:00Z");
}

TEST(TopCommand, ShowsTheQueueOfANamespaceOnly) {
  Program program(SceneOfTheDocs());
  ASSERT_EQ(program.Run("--queue -n vision"), kExitOk) << program.err.str();
  EXPECT_THAT(program.out.str(), HasSubstr("vision/detector"));
  EXPECT_THAT(program.out.str(), Not(HasSubstr("default/large")));
}

TEST(TopCommand, OneLineSaysWhatIsWrong) {
  ListedObjects scene = SceneOfTheDocs();
  scene.refused[Kind::kPod] = {ErrorCode::kPermissionDenied, "list pods: pods is forbidden"};
  Program program(scene);
  EXPECT_EQ(program.Run(""), kExitBadInput);
  EXPECT_THAT(program.err.str(), testing::StartsWith("trainyard: no right to list pods of all namespaces: "));
  EXPECT_EQ(program.out.str(), "");
  EXPECT_EQ(program.Run("--topology rack"), kExitBadInput);
  EXPECT_THAT(program.err.str(), HasSubstr("--topology"));
  EXPECT_EQ(program.Run("--catalogue /no/such/file"), kExitNotFound);
  EXPECT_THAT(program.err.str(), HasSubstr("/no/such/file"));
}

TEST(TopCommand, TakesTheTopologyThatTheOperatorWasGiven) {
  Program program(SceneOfTheDocs());
  ASSERT_EQ(program.Run("-o json --topology None"), kExitOk) << program.err.str();
  EXPECT_TRUE(json::parse(program.out.str())["levels"].empty());
  ASSERT_EQ(program.Run("-o json --topology hall=topology.kubernetes.io/zone"), kExitOk) << program.err.str();
  EXPECT_EQ(json::parse(program.out.str())["levels"], json::array({"hall"}));
}

// "PRODUCT in SCOPE" of -o json.
int64_t Largest(const Program& program, const std::string& product, const std::string& scope) {
  const json out = json::parse(program.out.str());
  for (const json& row : out["products"]) {
    for (const json& gang : row["largestGang"]) {
      if (row["product"] == product && gang["scope"] == scope) return gang["gpus"];
    }
  }
  ADD_FAILURE() << product << " " << scope;
  return -1;
}

TEST(TopCommand, LargestGangsHaveTheCpuAndMemoryThatPodsAskFor) {
  Program program(SceneOfTheDocs());  // nodes of 128 CPUs and 2 TiB
  ASSERT_EQ(program.Run("-o json"), kExitOk);
  EXPECT_EQ(Largest(program, "H100-SXM", "anywhere"), 48);
  ASSERT_EQ(program.Run("-o json --cpu-per-gpu 16 --memory-per-gpu 256Gi"), kExitOk) << program.err.str();
  EXPECT_EQ(Largest(program, "H100-SXM", "anywhere"), 48);
  ASSERT_EQ(program.Run("-o json --cpu-per-gpu 16001m"), kExitOk) << program.err.str();
  EXPECT_EQ(Largest(program, "H100-SXM", "anywhere"), 0);
  EXPECT_EQ(Largest(program, "H100-SXM", "in a node"), 7);
  EXPECT_EQ(Largest(program, "GB200", "in an NVLink domain"), 16);
  ASSERT_EQ(program.Run("-o json --memory-per-gpu 600Gi"), kExitOk) << program.err.str();
  EXPECT_EQ(Largest(program, "H100-SXM", "in a node"), 3);
  EXPECT_EQ(Largest(program, "GB200", "anywhere"), 0);
}

TEST(TopCommand, TheQueueIsOfPodsThatAskForWhatTheOperatorGivesThem) {
  ListedObjects scene;
  scene.Add(Kind::kNode, NodeObject("a", "NVIDIA-H100-80GB-HBM3", 8));
  scene.Add(Kind::kTrainingJob, WaitingJob("default", "job", 8, 8, "H100-SXM", 1));
  Program program(scene);
  ASSERT_EQ(program.Run("--queue --cpu-per-gpu 16"), kExitOk) << program.err.str();
  EXPECT_THAT(program.out.str(), HasSubstr("fits now"));
  ASSERT_EQ(program.Run("--queue --cpu-per-gpu 17"), kExitOk) << program.err.str();
  EXPECT_THAT(program.out.str(), testing::AllOf(Not(HasSubstr("fits now")), HasSubstr("lacks cpu")));
  ASSERT_EQ(program.Run("--queue --memory-per-gpu 257Gi"), kExitOk) << program.err.str();
  EXPECT_THAT(program.out.str(), HasSubstr("lacks memory"));
}

TEST(TopCommand, WhatIsNoQuantityIsSaidInOneLine) {
  Program program(SceneOfTheDocs());
  for (const std::string flag : {"--cpu-per-gpu", "--memory-per-gpu"}) {
    for (const std::string value : {"many", "-1", "8GiB", "99999999999999999999", "0"}) {
      EXPECT_EQ(program.Run(flag + " " + value), kExitBadInput) << flag << " " << value;
      const std::string said = program.err.str();
      EXPECT_THAT(said, testing::StartsWith("trainyard: " + flag)) << value;
      EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
      EXPECT_EQ(program.out.str(), "");
    }
  }
}

TEST(TopCommand, ConnectsOnlyToWhatCanBeAnApiServer) {
  const auto bad = ConnectForTop({.server = "localhost:8001"});
  ASSERT_FALSE(bad.has_value());
  EXPECT_EQ(bad.error().message, "--server: 'localhost:8001' must begin with http:// or https://");
  EXPECT_TRUE(ConnectForTop({.server = "http://127.0.0.1:8001/"}).has_value());
}

}  // namespace
}  // namespace trainyard::cli
