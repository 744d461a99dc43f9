// What the labels, taints and conditions of one node say about it. Private to the room.
// Pure. Thread-safety: pure functions.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "operator/api/snapshot.h"
#include "operator/placement/yard.h"
#include "operator/sizing/gpu_catalogue.h"

namespace trainyard::placement {

// Looks labels up in the catalogue, each value once: nodes by the thousand carry the same few.
class ProductNames {
 public:
  // Null: the compiled-in catalogue.
  explicit ProductNames(std::shared_ptr<const sizing::Catalogue> catalogue) : catalogue_(std::move(catalogue)) {}
  const sizing::GpuProduct* Find(const std::string& label);

 private:
  std::shared_ptr<const sizing::Catalogue> catalogue_;  // keeps what found_ points to
  std::map<std::string, const sizing::GpuProduct*> found_;
};

// Everything but the ledger: product, memory, links, clique, path on `levels`, usable GPUs, what bars whom.
YardNode Describe(const std::shared_ptr<const api::NodeSnapshot>& node, const YardOptions& options,
                  const std::vector<TopologyLevel>& levels, ProductNames& products);

}  // namespace trainyard::placement
