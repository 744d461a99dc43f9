// What a pod asks of its node, added up from its containers as kube-scheduler does it.
// Thread-safety: plain values and pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace trainyard::api {

// Resource -> amount in base units, cpu in thousandths.
using Amounts = std::map<std::string, int64_t>;

// Sums saturate.
void AddAmounts(Amounts& to, const Amounts& more);
// The larger of the two, of each resource.
void MaxAmounts(Amounts& to, const Amounts& other);

// max( sum of containers + sidecars, each init container + the sidecars before it ) + overhead.
class PodSum {
 public:
  void Container(const Amounts& asks) { AddAmounts(containers_, asks); }
  // In the order of the pod. A sidecar is one with restartPolicy Always: it runs on beside the containers.
  void InitContainer(Amounts asks, bool sidecar);
  // What the pod as a whole asks for: of cpu and memory it stands in for the containers (KEP-2837).
  void WholePod(Amounts asks) { whole_pod_ = std::move(asks); }
  void Overhead(Amounts overhead) { overhead_ = std::move(overhead); }

  Amounts Total() const;

 private:
  Amounts containers_;
  Amounts sidecars_;   // so far
  Amounts init_peak_;  // the most that is asked for at once before the containers run
  Amounts whole_pod_;
  Amounts overhead_;
};

}  // namespace trainyard::api
