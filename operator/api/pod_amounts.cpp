#include "operator/api/pod_amounts.h"

#include <algorithm>
#include <limits>

namespace trainyard::api {

void AddAmounts(Amounts& to, const Amounts& more) {
  for (const auto& [name, amount] : more) {
    int64_t& sum = to[name];
    if (__builtin_add_overflow(sum, amount, &sum)) sum = std::numeric_limits<int64_t>::max();
  }
}

void MaxAmounts(Amounts& to, const Amounts& other) {
  for (const auto& [name, amount] : other) to[name] = std::max(to[name], amount);
}

void PodSum::InitContainer(Amounts asks, bool sidecar) {
  if (sidecar) {
    AddAmounts(sidecars_, asks);
    MaxAmounts(init_peak_, sidecars_);
  } else {
    AddAmounts(asks, sidecars_);
    MaxAmounts(init_peak_, asks);
  }
}

Amounts PodSum::Total() const {
  Amounts total = containers_;
  AddAmounts(total, sidecars_);
  MaxAmounts(total, init_peak_);
  for (const char* name : {"cpu", "memory"}) {
    if (const auto whole = whole_pod_.find(name); whole != whole_pod_.end()) total[name] = whole->second;
  }
  AddAmounts(total, overhead_);
  return total;
}

}  // namespace trainyard::api
