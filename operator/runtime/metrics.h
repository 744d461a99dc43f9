// The numbers of one process for Prometheus: counters and histograms that are counted where things happen, and values
// that are looked up when somebody scrapes. The only door to prometheus-cpp.
// Thread-safety: all members from any thread. A collector is called from the thread that scrapes, and never once its
// Registration is gone.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "operator/runtime/metric_names.h"

namespace trainyard::runtime {

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

// Takes the values of one scrape.
class Scrape {
 public:
  virtual ~Scrape() = default;
  virtual void Gauge(const metric::Name& name, MetricLabels labels, double value) = 0;
  virtual void Counter(const metric::Name& name, MetricLabels labels, double value) = 0;
};

class Metrics {
 public:
  using Collector = std::function<void(Scrape&)>;
  // Unregisters the collector when it goes; waits for a scrape that is under way.
  class Registration {
   public:
    Registration() = default;
    Registration(Metrics* metrics, uint64_t id) : metrics_(metrics), id_(id) {}
    Registration(Registration&& other) noexcept : metrics_(std::exchange(other.metrics_, nullptr)), id_(other.id_) {}
    Registration& operator=(Registration&& other) noexcept;
    ~Registration();

   private:
    Metrics* metrics_ = nullptr;
    uint64_t id_ = 0;
  };

  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  void Count(const metric::Name& name, const MetricLabels& labels = {}, double by = 1);
  // Into a histogram of durations, whose buckets suit the span of the name.
  void Observe(const metric::Name& name, const MetricLabels& labels, double seconds);
  Registration AddCollector(Collector collector);

  // Everything in Prometheus' text format.
  std::string Text() const;

 private:
  void Remove(uint64_t id);
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Memory, CPU, file descriptors, threads and start time of this process, read from /proc.
void CollectProcess(Scrape& scrape);

}  // namespace trainyard::runtime
