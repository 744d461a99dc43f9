#include "operator/placement/fitness.h"

#include <memory>

#include "operator/placement/constraints.h"
#include "operator/placement/eligibility.h"

namespace trainyard::placement {

std::string WhyUnfit(const api::NodeSnapshot& node, const api::NodeConstraints& constraints, int64_t gpus,
                     const YardOptions& options) {
  ProductNames products(options.catalogue);
  // The caller's, and only looked at here.
  const std::shared_ptr<const api::NodeSnapshot> borrowed(std::shared_ptr<void>(), &node);
  const YardNode seen = Describe(borrowed, options, {}, products);
  if (!seen.Eligible()) return seen.ineligible;
  if (std::string barred = WhyBarred(seen, constraints); !barred.empty()) return barred;
  if (seen.usable < gpus) {
    return "advertises " + std::to_string(seen.usable) + " of the " + std::to_string(gpus) + " GPUs in use";
  }
  return "";
}

}  // namespace trainyard::placement
