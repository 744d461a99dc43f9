// Node selector, required affinity and tolerations, with the meaning of kube-scheduler.
#include "operator/placement/constraints.h"

#include <gmock/gmock.h>

#include "tests/operator/placement/yard_fixture.h"

namespace trainyard::placement {
namespace {

using api::NodeConstraints;
using api::NodeRequirement;
using api::NodeTerm;
using api::Toleration;

YardNode Node(const std::map<std::string, std::string>& labels, const std::vector<api::Taint>& taints = {}) {
  api::NodeSnapshot node = MakeNode("n1", 8);
  for (const auto& [key, value] : labels) node.labels[key] = value;
  node.taints = taints;
  return Yard::Build({node}, {}, {}, {}).nodes().at(0);
}

std::string Why(const YardNode& node, const NodeConstraints& constraints) {
  std::string why = WhyBarred(node, constraints);
  EXPECT_EQ(why.empty(), Allowed(node, constraints)) << "both say the same";
  return why;
}

std::string WhyTolerated(const std::vector<api::Taint>& taints, const std::vector<Toleration>& tolerations) {
  return Why(Node({}, taints), {.node_selector = {}, .affinity = {}, .tolerations = tolerations});
}

std::string WhyRequired(const YardNode& node, const NodeRequirement& requirement) {
  return Why(node,
             {.node_selector = {}, .affinity = {{.expressions = {requirement}, .fields = {}}}, .tolerations = {}});
}

TEST(Constraints, NothingAskedBarsNothing) { EXPECT_EQ(Why(Node({}), {}), ""); }

TEST(Constraints, AllLabelsOfTheSelectorMustHaveTheirValue) {
  const NodeConstraints both{.node_selector = {{"disk", "nvme"}, {"tier", "a"}}, .affinity = {}, .tolerations = {}};
  EXPECT_EQ(Why(Node({{"disk", "nvme"}, {"tier", "a"}}), both), "");
  EXPECT_EQ(Why(Node({{"disk", "nvme"}, {"tier", "b"}}), both), "node selector tier=a");
  EXPECT_EQ(Why(Node({{"tier", "a"}}), both), "node selector disk=nvme");
}

TEST(Constraints, TaintsBarUnlessTolerated) {
  const std::vector<api::Taint> team = {{"team", "vision", "NoSchedule"}};
  EXPECT_EQ(WhyTolerated(team, {}), "taint team=vision:NoSchedule");
  EXPECT_EQ(WhyTolerated(team, {{"team", "Equal", "vision", "NoSchedule", {}}}), "");
  EXPECT_EQ(WhyTolerated(team, {{"team", "", "vision", "", {}}}), "") << "no operator means Equal, no effect means all";
  EXPECT_EQ(WhyTolerated(team, {{"team", "Exists", "", "", {}}}), "");
  EXPECT_EQ(WhyTolerated(team, {{"", "Exists", "", "", {}}}), "") << "an empty key with Exists tolerates everything";
  EXPECT_NE(WhyTolerated(team, {{"team", "Equal", "speech", "", {}}}), "");
  EXPECT_NE(WhyTolerated(team, {{"team", "Exists", "", "NoExecute", {}}}), "") << "of another effect";
  EXPECT_NE(WhyTolerated(team, {{"", "Equal", "vision", "", {}}}), "") << "an empty key with Equal is nothing";
  EXPECT_NE(WhyTolerated(team, {{"team", "Gt", "vision", "", {}}}), "") << "an operator that we do not know";
}

TEST(Constraints, EveryTaintMustBeTolerated) {
  const std::vector<api::Taint> two = {{"a", "", "NoSchedule"}, {"b", "", "NoExecute"}};
  EXPECT_EQ(WhyTolerated(two, {{"a", "Exists", "", "", {}}}), "taint b:NoExecute");
  EXPECT_EQ(WhyTolerated(two, {{"a", "Exists", "", "", {}}, {"b", "Exists", "", "", {}}}), "");
}

TEST(Constraints, AGangDoesNotGoWhereItWouldBeEvictedAfterSomeSeconds) {
  const std::vector<api::Taint> evicting = {{"maintenance", "", "NoExecute"}};
  EXPECT_EQ(WhyTolerated(evicting, {{"maintenance", "Exists", "", "NoExecute", 300}}), "taint maintenance:NoExecute");
  EXPECT_EQ(WhyTolerated(evicting, {{"maintenance", "Exists", "", "NoExecute", {}}}), "");
}

TEST(Constraints, PreferNoScheduleBarsNobody) { EXPECT_EQ(WhyTolerated({{"soft", "", "PreferNoSchedule"}}, {}), ""); }

TEST(Constraints, OurOwnTolerationIsForNoScheduleOnly) {
  EXPECT_EQ(WhyTolerated({{"nvidia.com/gpu", "present", "NoSchedule"}}, {}), "");
  EXPECT_EQ(WhyTolerated({{"nvidia.com/gpu", "present", "NoExecute"}}, {}), "taint nvidia.com/gpu=present:NoExecute");
}

TEST(Constraints, EachOperatorOfARequirement) {
  const YardNode node = Node({{"zone", "a"}, {"cores", "64"}, {"word", "many"}});
  EXPECT_EQ(WhyRequired(node, {"zone", "In", {"b", "a"}}), "");
  EXPECT_EQ(WhyRequired(node, {"zone", "In", {"b", "c"}}), "node affinity zone In [b, c]");
  EXPECT_EQ(WhyRequired(node, {"zone", "In", {"b", "c", "d", "e"}}), "node affinity zone In [b, c, d, ...]");
  EXPECT_NE(WhyRequired(node, {"none", "In", {""}}), "") << "a missing label is not an empty one";
  EXPECT_EQ(WhyRequired(node, {"zone", "NotIn", {"b"}}), "");
  EXPECT_NE(WhyRequired(node, {"zone", "NotIn", {"a"}}), "");
  EXPECT_EQ(WhyRequired(node, {"none", "NotIn", {"a"}}), "") << "what is not there is not in";
  EXPECT_EQ(WhyRequired(node, {"zone", "Exists", {}}), "");
  EXPECT_EQ(WhyRequired(node, {"none", "Exists", {}}), "node affinity none Exists");
  EXPECT_EQ(WhyRequired(node, {"none", "DoesNotExist", {}}), "");
  EXPECT_NE(WhyRequired(node, {"zone", "DoesNotExist", {}}), "");
  EXPECT_EQ(WhyRequired(node, {"cores", "Gt", {"63"}}), "");
  EXPECT_NE(WhyRequired(node, {"cores", "Gt", {"64"}}), "");
  EXPECT_EQ(WhyRequired(node, {"cores", "Lt", {"65"}}), "");
  EXPECT_NE(WhyRequired(node, {"cores", "Lt", {"-1"}}), "");
  EXPECT_NE(WhyRequired(node, {"word", "Gt", {"1"}}), "") << "no number";
  EXPECT_NE(WhyRequired(node, {"cores", "Gt", {"99999999999999999999"}}), "") << "no number of 64 bits";
  EXPECT_NE(WhyRequired(node, {"none", "Lt", {"1"}}), "");
  EXPECT_NE(WhyRequired(node, {"zone", "Like", {"a"}}), "") << "an operator that we do not know";
}

TEST(Constraints, OneTermMustHoldAndAllOfIt) {
  const NodeTerm a_and_big{.expressions = {{"zone", "In", {"a"}}, {"cores", "Gt", {"100"}}}, .fields = {}};
  const NodeTerm in_b{.expressions = {{"zone", "In", {"b"}}}, .fields = {}};
  const auto asks = [](std::vector<NodeTerm> terms) {
    return NodeConstraints{.node_selector = {}, .affinity = std::move(terms), .tolerations = {}};
  };
  EXPECT_EQ(Why(Node({{"zone", "a"}, {"cores", "128"}}), asks({a_and_big, in_b})), "");
  EXPECT_EQ(Why(Node({{"zone", "b"}}), asks({a_and_big, in_b})), "");
  EXPECT_EQ(Why(Node({{"zone", "a"}, {"cores", "64"}}), asks({a_and_big, in_b})),
            "node affinity (none of its terms holds)");
  EXPECT_EQ(Why(Node({{"zone", "a"}, {"cores", "64"}}), asks({a_and_big})), "node affinity cores Gt [100]");
}

TEST(Constraints, ATermWithoutARequirementHoldsNowhere) {
  EXPECT_EQ(Why(Node({}), {.node_selector = {}, .affinity = {{}}, .tolerations = {}}),
            "node affinity (its term has no requirement)");
  NodeTerm here{.expressions = {}, .fields = {{"metadata.name", "In", {"n1"}}}};
  EXPECT_EQ(Why(Node({}), {.node_selector = {}, .affinity = {{}, here}, .tolerations = {}}), "");
}

TEST(Constraints, FieldsKnowTheNameOfTheNode) {
  const auto field = [](const std::string& op, const std::string& value) {
    return NodeConstraints{.node_selector = {},
                           .affinity = {{.expressions = {}, .fields = {{"metadata.name", op, {value}}}}},
                           .tolerations = {}};
  };
  EXPECT_EQ(Why(Node({}), field("In", "n1")), "");
  EXPECT_EQ(Why(Node({}), field("In", "n2")), "node affinity metadata.name In [n2]");
  EXPECT_EQ(Why(Node({}), field("NotIn", "n2")), "");
  EXPECT_NE(Why(Node({}), field("NotIn", "n1")), "");
}

TEST(Constraints, APlanCountsOnNodesThatTheJobMayUse) {
  api::NodeSnapshot tainted = MakeNode("t", 8);
  tainted.taints = {{"team", "vision", "NoSchedule"}};
  const Yard yard = Yard::Build({MakeNode("a", 8), tainted}, {}, {}, {});
  ASSERT_EQ(yard.Supply().size(), 1u);
  EXPECT_EQ(yard.Supply()[0].nodes, 1);
  NodeConstraints vision;
  vision.tolerations = {{"team", "Exists", "", "", {}}};
  EXPECT_EQ(yard.Supply(vision)[0].nodes, 2);
}

}  // namespace
}  // namespace trainyard::placement
