#include "operator/runtime/metrics.h"

#include <regex>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/base/files.h"

namespace trainyard::runtime {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Metrics, CountersAndHistogramsAppearInTheTextFormat) {
  Metrics metrics;
  const MetricLabels get = {{"verb", "get"}, {"resource", "pods"}, {"subresource", ""}, {"code", "200"}};
  metrics.Count(metric::kRequests, get);
  metrics.Count(metric::kRequests, get, 2);
  metrics.Count(metric::kPodsCreated);
  metrics.Observe(metric::kReconcileSeconds, {{"controller", "trainingjob"}}, 0.3);
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("# TYPE rest_client_requests_total counter\n"));
  EXPECT_THAT(text, HasSubstr("# HELP trainyard_pods_created_total Pods created.\n"));
  EXPECT_THAT(text, testing::ContainsRegex("rest_client_requests_total\\{[^}]*verb=\"get\"[^}]*\\} 3\n"));
  EXPECT_THAT(text, HasSubstr("trainyard_pods_created_total 1\n"));
  EXPECT_THAT(text, HasSubstr("reconcile_duration_seconds_bucket{controller=\"trainingjob\",le=\"0.25\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("reconcile_duration_seconds_bucket{controller=\"trainingjob\",le=\"0.5\"} 1\n"));
}

TEST(Metrics, ACollectorIsAskedAtEachScrapeUntilItsRegistrationGoes) {
  Metrics metrics;
  int asked = 0;
  {
    const Metrics::Registration registration = metrics.AddCollector([&](Scrape& scrape) {
      scrape.Gauge(metric::kJobs, {{"phase", "Running"}}, ++asked);
      scrape.Gauge(metric::kJobs, {{"phase", "Pending"}}, 7);
    });
    EXPECT_THAT(metrics.Text(), HasSubstr("trainyard_jobs{phase=\"Running\"} 1\n"));
    const std::string text = metrics.Text();
    EXPECT_THAT(text, HasSubstr("trainyard_jobs{phase=\"Running\"} 2\n"));
    EXPECT_THAT(text, HasSubstr("trainyard_jobs{phase=\"Pending\"} 7\n"));
    EXPECT_EQ(text.find("# TYPE trainyard_jobs gauge"), text.rfind("# TYPE trainyard_jobs gauge"));
  }
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("trainyard_jobs")));
  EXPECT_EQ(asked, 2);
}

TEST(Metrics, TheProcessTellsOfItself) {
  Metrics metrics;
  const auto registration = metrics.AddCollector(CollectProcess);
  const std::string text = metrics.Text();
  for (const metric::Name& name : {metric::kResidentBytes, metric::kCpuSeconds, metric::kStartTime, metric::kOpenFds,
                                   metric::kMaxFds, metric::kThreads, metric::kVirtualBytes}) {
    EXPECT_THAT(text, HasSubstr(std::string("\n") + name.name + " ")) << text;
  }
  const size_t at = text.find("\nprocess_resident_memory_bytes ");
  const double resident = std::stod(text.substr(at + 31));
  EXPECT_GT(resident, 1e6);
  EXPECT_LT(resident, 4e9);
}

TEST(Metrics, ManyThreadsMayCount) {
  Metrics metrics;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&metrics] {
        for (int i = 0; i < 1000; ++i) metrics.Count(metric::kEvents, {{"result", i % 2 == 0 ? "written" : "failed"}});
      });
    }
  }
  EXPECT_THAT(metrics.Text(), HasSubstr("trainyard_events_total{result=\"written\"} 2000\n"));
}

TEST(Metrics, WaitsHaveBucketsOfHours) {
  Metrics metrics;
  metrics.Observe(metric::kQueueWaitSeconds, {{"gpus", "2-8"}}, 5000);
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("trainyard_queue_wait_seconds_bucket{gpus=\"2-8\",le=\"3600\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("trainyard_queue_wait_seconds_bucket{gpus=\"2-8\",le=\"7200\"} 1\n"));
}

// Operators read docs/operations.md, not the sources.
TEST(Metrics, EveryOneIsInTheTableOfTheDocs) {
  const std::string docs = ReadFile(TRAINYARD_SOURCE_DIR "/docs/operations.md").value();
  const std::string header = ReadFile(TRAINYARD_SOURCE_DIR "/operator/runtime/metric_names.h").value();
  const std::regex name(R"re(inline constexpr Name k\w+\{\s*"(\w+)")re");
  int count = 0;
  for (std::sregex_iterator it(header.begin(), header.end(), name), end; it != end; ++it, ++count) {
    const std::string metric = (*it)[1];
    if (metric.starts_with("process_")) continue;  // one row for all
    EXPECT_THAT(docs, HasSubstr("`" + metric + "`")) << "docs/operations.md should tell of it";
  }
  EXPECT_GT(count, 40);
}

}  // namespace
}  // namespace trainyard::runtime
