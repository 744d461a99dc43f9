#include "operator/api/pod_amounts.h"

#include <gmock/gmock.h>

#include <limits>

namespace trainyard::api {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

TEST(PodSum, ContainersRunTogetherAndInitContainersOneByOne) {
  PodSum sum;
  EXPECT_THAT(sum.Total(), IsEmpty());
  sum.Container({{"cpu", 1000}, {"memory", 10}});
  sum.Container({{"cpu", 500}, {"rdma/hca", 1}});
  EXPECT_THAT(sum.Total(), ElementsAre(Pair("cpu", 1500), Pair("memory", 10), Pair("rdma/hca", 1)));
  sum.InitContainer({{"cpu", 1200}}, false);
  sum.InitContainer({{"cpu", 1400}, {"memory", 30}}, false);
  EXPECT_THAT(sum.Total(), ElementsAre(Pair("cpu", 1500), Pair("memory", 30), Pair("rdma/hca", 1)));
}

TEST(PodSum, SidecarsRunBesideWhatComesAfterThem) {
  PodSum sum;
  sum.Container({{"cpu", 1000}});
  sum.InitContainer({{"cpu", 5000}}, false);  // before the sidecars
  sum.InitContainer({{"cpu", 300}}, true);
  sum.InitContainer({{"cpu", 4900}}, false);  // beside the first
  EXPECT_THAT(sum.Total(), ElementsAre(Pair("cpu", 5200)));
  sum.InitContainer({{"cpu", 4500}}, true);
  EXPECT_THAT(sum.Total(), ElementsAre(Pair("cpu", 5800))) << "the container and both sidecars";
}

TEST(PodSum, ThePodsOwnRequestStandsInAndOverheadComesOnTop) {
  PodSum sum;
  sum.Container({{"cpu", 1000}, {"memory", 10}, {"rdma/hca", 2}});
  sum.WholePod({{"cpu", 800}, {"rdma/hca", 1}});
  sum.Overhead({{"cpu", 250}, {"memory", 1}});
  EXPECT_THAT(sum.Total(), ElementsAre(Pair("cpu", 1050), Pair("memory", 11), Pair("rdma/hca", 2)))
      << "of cpu and memory alone";
}

TEST(PodSum, Saturates) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  PodSum sum;
  sum.Container({{"memory", kMost}});
  sum.Container({{"memory", 1}});
  sum.Overhead({{"memory", kMost}});
  EXPECT_THAT(sum.Total(), ElementsAre(Pair("memory", kMost)));
}

}  // namespace
}  // namespace trainyard::api
