#include "operator/runtime/metrics.h"

#include <algorithm>
#include <map>
#include <mutex>

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace trainyard::runtime {
namespace {

const prometheus::Histogram::BucketBoundaries kDurations = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                                            0.5,   1,      2.5,   5,    10,    30,   60};
// 1 s to 7 days.
const prometheus::Histogram::BucketBoundaries kWaits = {1,    5,     15,    60,    300,    900,   3600,
                                                        7200, 14400, 43200, 86400, 259200, 604800};

prometheus::Labels ToLabels(const MetricLabels& labels) { return {labels.begin(), labels.end()}; }

// Gathers samples into families, in the order of their first appearance.
class Families : public Scrape {
 public:
  void Gauge(const metric::Name& name, MetricLabels labels, double value) override {
    Add(name, std::move(labels), prometheus::MetricType::Gauge).gauge.value = value;
  }
  void Counter(const metric::Name& name, MetricLabels labels, double value) override {
    Add(name, std::move(labels), prometheus::MetricType::Counter).counter.value = value;
  }
  std::vector<prometheus::MetricFamily> families;

 private:
  prometheus::ClientMetric& Add(const metric::Name& name, MetricLabels labels, prometheus::MetricType type) {
    auto family = std::find_if(families.begin(), families.end(), [&](const auto& f) { return f.name == name.name; });
    if (family == families.end()) {
      families.push_back({name.name, name.help, type, {}});
      family = families.end() - 1;
    }
    prometheus::ClientMetric& metric = family->metric.emplace_back();
    for (auto& [key, value] : labels) metric.label.push_back({std::move(key), std::move(value)});
    return metric;
  }
};

}  // namespace

class Metrics::Impl {
 public:
  prometheus::Registry registry;
  std::mutex mutex;  // guards the next two
  std::map<std::string, prometheus::Family<prometheus::Counter>*> counters;
  std::map<std::string, prometheus::Family<prometheus::Histogram>*> histograms;
  std::mutex collecting;  // guards the next two; held during a scrape
  std::map<uint64_t, Collector> collectors;
  uint64_t last_id = 0;
};

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {}
Metrics::~Metrics() = default;

void Metrics::Count(const metric::Name& name, const MetricLabels& labels, double by) {
  std::lock_guard lock(impl_->mutex);
  auto& family = impl_->counters[name.name];
  if (family == nullptr) {
    family = &prometheus::BuildCounter().Name(name.name).Help(name.help).Register(impl_->registry);
  }
  family->Add(ToLabels(labels)).Increment(by);
}

void Metrics::Observe(const metric::Name& name, const MetricLabels& labels, double seconds) {
  std::lock_guard lock(impl_->mutex);
  auto& family = impl_->histograms[name.name];
  if (family == nullptr) {
    family = &prometheus::BuildHistogram().Name(name.name).Help(name.help).Register(impl_->registry);
  }
  family->Add(ToLabels(labels), name.span == metric::Span::kWaits ? kWaits : kDurations).Observe(seconds);
}

Metrics::Registration Metrics::AddCollector(Collector collector) {
  std::lock_guard lock(impl_->collecting);
  impl_->collectors[++impl_->last_id] = std::move(collector);
  return {this, impl_->last_id};
}

void Metrics::Remove(uint64_t id) {
  std::lock_guard lock(impl_->collecting);
  impl_->collectors.erase(id);
}

std::string Metrics::Text() const {
  Families samples;
  {
    std::lock_guard lock(impl_->collecting);
    for (const auto& [id, collector] : impl_->collectors) collector(samples);
  }
  std::vector<prometheus::MetricFamily> all = impl_->registry.Collect();
  std::move(samples.families.begin(), samples.families.end(), std::back_inserter(all));
  return prometheus::TextSerializer().Serialize(all);
}

Metrics::Registration& Metrics::Registration::operator=(Registration&& other) noexcept {
  std::swap(metrics_, other.metrics_);
  std::swap(id_, other.id_);
  return *this;
}

Metrics::Registration::~Registration() {
  if (metrics_ != nullptr) metrics_->Remove(id_);
}

}  // namespace trainyard::runtime
