// Which nodes can take one pod of a gang now, and with how many GPUs free in its eyes. Private to the room.
// Pure. Thread-safety: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "operator/placement/place.h"
#include "operator/placement/selection.h"

namespace trainyard::placement {

// The products that a request names, as nodes call them (the catalogue's short names where it knows them).
std::vector<std::string> ShortNames(const std::vector<std::string>& products, const sizing::Catalogue& catalogue);
// Whether a node's product is one of them; any known label will do where none is named.
bool ProductAllowed(const YardNode& node, const std::vector<std::string>& short_names);

// GPUs free for this request on a node: its own, and those of jobs taken as stopped, count; those kept for others do
// not.
int64_t FreeFor(const YardNode& node, const GangRequest& request);

// Name of the first resource besides GPUs that a pod of this request lacks on the node; empty: none. Of cpu,
// memory, pods and ephemeral storage a node that does not name them is not short; of any other resource it has none.
std::string LackingResource(const YardNode& node, const GangRequest& request);

// The nodes of a yard as one request sees them, by position; reads packed numbers wherever it sees what everybody sees.
// Lives no longer than the yard and the request.
class RequestView {
 public:
  RequestView(const Yard& yard, const GangRequest& request);
  int64_t Free(size_t node) const;  // FreeFor
  bool Lacks(size_t node) const;    // whether LackingResource names one

 private:
  const Yard& yard_;
  const GangRequest& request_;
  std::vector<bool> seen_otherwise_;  // it holds something there, or something is kept there or given back
  std::array<int64_t, kPackedResources.size()> packed_{};
  std::vector<std::pair<std::string, int64_t>> others_;
};

// Candidates of one product, in the order of the yard; penalties[i], the failures of nodes[i].
struct ProductCandidates {
  std::vector<Candidate> nodes;
  std::vector<int64_t> penalties;
};

// In the order in which the request names products, else in that of their first candidates. `within`: only nodes whose
// place at this level is known.
std::vector<ProductCandidates> FindCandidates(const Yard& yard, const GangRequest& request,
                                              std::optional<size_t> within);

}  // namespace trainyard::placement
