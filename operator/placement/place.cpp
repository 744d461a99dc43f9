#include "operator/placement/place.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include "operator/placement/candidates.h"
#include "operator/placement/selection.h"
#include "operator/placement/why_not.h"

namespace trainyard::placement {
namespace {

Status Sensible(const GangRequest& request) {
  if (request.gpus > 0 && request.per_node > 0 && request.gpus % request.per_node == 0) return {};
  return Fail(ErrorCode::kInvalidArgument, "cannot place " + std::to_string(request.gpus) + " GPUs as equal pods of " +
                                               std::to_string(request.per_node));
}

// Where the gang should be together. nullopt: it asks for a level that this yard does not have.
std::optional<Aim> AimOf(const Yard& yard, const GangRequest& request) {
  const size_t clique = yard.index().depth() - 1;
  Aim aim;
  aim.count = static_cast<size_t>(request.gpus / request.per_node);
  const std::optional<size_t> named = request.level.empty() ? std::nullopt : yard.LevelIndex(request.level);
  const bool one_level = !request.level.empty() && request.level_required;
  if (one_level) {
    if (!named || *named >= clique) return std::nullopt;
    aim.within = named;
  }
  // NVLink across nodes is nearer than any label.
  if (request.nvlink != api::NvLink::kAny) aim.levels.push_back(clique);
  aim.several = request.nvlink != api::NvLink::kRequired && !one_level;
  if (request.nvlink == api::NvLink::kRequired) return aim;
  if (one_level) {
    aim.levels.push_back(*named);
  } else {
    const size_t nearest = named ? std::min(*named + 1, clique) : clique;
    for (size_t level = nearest; level-- > 0;) aim.levels.push_back(level);
  }
  return aim;
}

GangPlacement Finish(const Yard& yard, const GangRequest& request, const Selection& selection, int64_t penalty) {
  GangPlacement out;
  for (size_t node : selection.nodes) out.nodes.push_back(yard.nodes()[node].name);
  out.product = yard.nodes()[selection.nodes.front()].product;
  out.domain = selection.domain;
  out.why = std::to_string(out.nodes.size()) + " x " + std::to_string(request.per_node) + " " + out.product +
            (request.per_node == 1 ? " GPU" : " GPUs") + " on " + selection.domain;
  if (penalty > 0) out.why += "; nodes that failed before had to be used again";
  if (!request.level.empty() && !yard.LevelIndex(request.level)) {
    out.why += "; no node says where it is by a level called " + request.level;
  }
  return out;
}

}  // namespace

std::optional<GangPlacement> FindPlace(const Yard& yard, const GangRequest& request) {
  if (!Sensible(request)) return std::nullopt;
  const std::optional<Aim> aim = AimOf(yard, request);
  if (!aim) return std::nullopt;
  const std::vector<ProductCandidates> found = FindCandidates(yard, request, aim->within);
  std::set<int64_t> penalties;
  for (const ProductCandidates& product : found) {
    penalties.insert(product.penalties.begin(), product.penalties.end());
  }
  // Nodes that failed are left out as long as anything else fits, the worst ones longest.
  for (const int64_t penalty : penalties) {
    for (const ProductCandidates& product : found) {
      std::vector<Candidate> candidates;
      for (size_t i = 0; i < product.nodes.size(); ++i) {
        if (product.penalties[i] <= penalty) candidates.push_back(product.nodes[i]);
      }
      if (auto selection = Select(yard, std::move(candidates), *aim)) {
        return Finish(yard, request, *selection, penalty);
      }
    }
  }
  return std::nullopt;
}

Result<GangPlacement> Place(const Yard& yard, const GangRequest& request) {
  if (auto sensible = Sensible(request); !sensible) return tl::unexpected(sensible.error());
  if (auto placed = FindPlace(yard, request)) return *std::move(placed);
  return Fail(ErrorCode::kResourceExhausted, WhyNot(yard, request));
}

int64_t RingCrossings(const Yard& yard, const std::vector<std::string>& nodes, size_t level) {
  const std::vector<uint32_t>& domains = yard.index().Domains(level);
  // A node that is gone is nowhere near any other.
  auto domain = [&](size_t rank) {
    const YardNode* node = yard.Find(nodes[rank]);
    return node == nullptr ? domains.size() + rank : domains[static_cast<size_t>(node - yard.nodes().data())];
  };
  int64_t crossings = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (domain(i) != domain((i + 1) % nodes.size())) ++crossings;
  }
  return crossings;
}

}  // namespace trainyard::placement
