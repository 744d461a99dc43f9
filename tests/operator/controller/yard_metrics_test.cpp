// Yard, queue and gangs as metrics: the values, and that the number of series stays bounded.
#include "operator/controller/yard_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace trainyard::controller {
namespace {

using testing::HasSubstr;
using testing::Not;

// "name{a=1,b=2}" -> value. A series that comes twice is an error of the scrape.
class Series : public runtime::Scrape {
 public:
  void Gauge(const runtime::metric::Name& name, runtime::MetricLabels labels, double value) override {
    std::string key = name.name;
    for (const auto& [label, text] : labels) key += "," + label + "=" + text;
    EXPECT_TRUE(values.emplace(key, value).second) << key << " comes twice";
  }
  void Counter(const runtime::metric::Name& name, runtime::MetricLabels, double) override {
    ADD_FAILURE() << name.name << " is a gauge";
  }
  size_t Of(const std::string& name) const {
    size_t count = 0;
    for (const auto& [key, value] : values) count += key.starts_with(name + ",") || key == name ? 1u : 0u;
    return count;
  }
  std::map<std::string, double> values;
};

const TimePoint kNow = ParseTime("2026-03-02T12:00:00Z").value();

placement::LineEntry Entry(int64_t position, const std::string& name, int64_t priority, int64_t gpus) {
  placement::LineEntry entry;
  entry.uid = "uid-" + name;
  entry.name = "default/" + name;
  entry.position = position;
  entry.priority = priority;
  entry.gpus = gpus;
  entry.products = {"H100-SXM"};
  entry.since = kNow - Milliseconds(60'000 * position);
  return entry;
}

placement::Line LineOf(std::vector<placement::LineEntry> entries) {
  placement::Line line;
  line.entries = std::move(entries);
  for (size_t i = 0; i < line.entries.size(); ++i) line.index[line.entries[i].uid] = i;
  return line;
}

TEST(YardMetrics, TellWhatIsUsedFreeStrandedAndUnfit) {
  placement::Census census;
  placement::ProductCensus product;
  product.product = "H100-SXM";
  product.tally.nodes = 4;
  product.tally.unfit_nodes = 1;
  product.tally.used = 10;
  product.tally.free = 14;
  product.tally.stranded = 6;
  product.tally.unfit = 8;
  product.tally.largest_gang = 8;
  product.largest_in_node = 8;
  product.largest_in_nvlink = 8;
  product.in_domain = {16, 8};
  census.products.push_back(product);
  Series scrape;
  CollectYard(census, {"any", "rack"}, scrape);  // a level may be called as it likes
  EXPECT_EQ(scrape.values.at("trainyard_gpus,product=H100-SXM,state=used"), 10);
  EXPECT_EQ(scrape.values.at("trainyard_gpus,product=H100-SXM,state=free"), 14);
  EXPECT_EQ(scrape.values.at("trainyard_gpus,product=H100-SXM,state=unfit"), 8);
  EXPECT_EQ(scrape.values.at("trainyard_gpus_stranded,product=H100-SXM"), 6);
  EXPECT_EQ(scrape.values.at("trainyard_nodes,product=H100-SXM,state=fit"), 3);
  EXPECT_EQ(scrape.values.at("trainyard_largest_gang_gpus,product=H100-SXM,scope=rack"), 8);
  EXPECT_EQ(scrape.values.at("trainyard_largest_gang_gpus,product=H100-SXM,scope=any"), 8);
}

TEST(YardMetrics, TellOfTheQueue) {
  auto first = Entry(1, "first", 1000, 64);
  first.reserved = {{"a", 8}, {"b", 4}};
  Series scrape;
  CollectQueue(LineOf({first, Entry(2, "second", 0, 8), Entry(3, "third", 0, 8)}), kNow, scrape);
  EXPECT_EQ(scrape.values.at("trainyard_queue_length,product=H100-SXM,priority=1000"), 1);
  EXPECT_EQ(scrape.values.at("trainyard_queue_length,product=H100-SXM,priority=0"), 2);
  EXPECT_EQ(scrape.values.at("trainyard_queue_gpus,product=H100-SXM,priority=0"), 16);
  EXPECT_EQ(scrape.values.at("trainyard_queue_position,namespace=default,name=second"), 2);
  EXPECT_EQ(scrape.values.at("trainyard_queue_reservations"), 1);
  EXPECT_EQ(scrape.values.at("trainyard_queue_reserved_gpus,product=H100-SXM"), 12);
  EXPECT_EQ(scrape.values.at("trainyard_queue_oldest_seconds"), 180);
}

TEST(YardMetrics, NameOnlyTheFirstHundredJobs) {
  std::vector<placement::LineEntry> entries;
  for (int64_t i = 1; i <= 4000; ++i) entries.push_back(Entry(i, "job-" + std::to_string(i), 0, 1));
  Series scrape;
  CollectQueue(LineOf(entries), kNow, scrape);
  EXPECT_EQ(scrape.Of("trainyard_queue_position"), 100u);
  EXPECT_EQ(scrape.Of("trainyard_queue_length"), 1u);
  EXPECT_LT(scrape.values.size(), 110u);
}

TEST(YardMetrics, AStartBehindOneThatWaitsIsABackfill) {
  auto head = Entry(1, "head", 0, 64);
  auto small = Entry(2, "small", 0, 1);
  small.fits = true;
  EXPECT_TRUE(Backfills(LineOf({head, small}), "uid-small"));
  EXPECT_FALSE(Backfills(LineOf({head, small}), "uid-head"));
  EXPECT_FALSE(Backfills(LineOf({head, small}), "uid-stranger"));
  head.never = true;  // it waits for what is not there, and nobody passes it by
  EXPECT_FALSE(Backfills(LineOf({head, small}), "uid-small"));
  head.never = false;
  head.products = {"L4"};
  EXPECT_FALSE(Backfills(LineOf({head, small}), "uid-small"));
  head.products = {"H100-SXM"};
  head.fits = true;
  EXPECT_FALSE(Backfills(LineOf({head, small}), "uid-small"));
}

TEST(YardMetrics, CountersAreThereBeforeTheirFirstCount) {
  runtime::Metrics metrics;
  BeginCounters(metrics);
  BeginCounters(metrics);  // a second controller of the same process
  for (const char* series :
       {"trainyard_preemptions_total", "trainyard_gangs_undone_total", "trainyard_backfilled_starts_total",
        "trainyard_pods_created_total", "trainyard_status_writes_total", "trainyard_job_restarts_total{class=\"user\"}",
        "trainyard_job_restarts_total{class=\"infrastructure\"}", "trainyard_events_total{result=\"written\"}",
        "trainyard_events_total{result=\"failed\"}", "trainyard_events_total{result=\"dropped\"}"}) {
    EXPECT_THAT(metrics.Text(), HasSubstr("\n" + std::string(series) + " 0\n"));
  }
}

TEST(YardMetrics, CountWhatAWriteMeans) {
  runtime::Metrics metrics;
  api::TrainingJob job;
  job.meta.uid = "uid-small";
  job.meta.creation_time = kNow - Milliseconds(5'000'000);
  api::JobStatus claimed;
  claimed.attempt = 1;
  claimed.plan.emplace().gpus = 16;
  claimed.placement.emplace();
  claimed.placing_since = kNow;
  CountChange(job, claimed, metrics);
  std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("trainyard_queue_wait_seconds_count{gpus=\"9-64\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("trainyard_queue_wait_seconds_sum{gpus=\"9-64\"} 5000\n"));
  EXPECT_THAT(text, Not(HasSubstr("trainyard_preemptions_total")));

  job.status = claimed;
  api::JobStatus preempted = claimed;
  preempted.stop = api::StopStatus{"Preempted", 1, std::nullopt};
  CountChange(job, preempted, metrics);
  job.status = preempted;
  CountChange(job, preempted, metrics);  // a later write of the same stop
  api::JobStatus undone = claimed;
  undone.attempt = 2;
  undone.stop = api::StopStatus{"Undo", 2, std::nullopt};
  CountChange(job, undone, metrics);
  text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("trainyard_preemptions_total 1\n"));
  EXPECT_THAT(text, HasSubstr("trainyard_gangs_undone_total 1\n"));
  EXPECT_THAT(text, HasSubstr("trainyard_queue_wait_seconds_count{gpus=\"9-64\"} 1\n"));
}

TEST(YardMetrics, SizesFallIntoAFewClasses) {
  EXPECT_EQ(SizeClass(1), "1");
  EXPECT_EQ(SizeClass(2), "2-8");
  EXPECT_EQ(SizeClass(8), "2-8");
  EXPECT_EQ(SizeClass(9), "9-64");
  EXPECT_EQ(SizeClass(512), "65-512");
  EXPECT_EQ(SizeClass(513), "513+");
}

}  // namespace
}  // namespace trainyard::controller
