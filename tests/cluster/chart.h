// charts/trainyard as helm renders it. Thread-safety: free functions; the values of one call are its own.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/base/error.h"
#include "tests/cluster/control_plane.h"

namespace trainyard::cluster_test {

inline const std::string kChart = TRAINYARD_SOURCE_DIR "/charts/trainyard";

// The program, fetched at the first call. kFailedPrecondition: it cannot be had here, and the message says why.
Result<std::string> HelmProgram();

// helm with these arguments; its remarks about the link to the CRD are left out of `err`.
Ran Helm(std::vector<std::string> arguments);

// helm template of release "trainyard" in namespace "trainyard-system".
Ran Render(std::vector<std::string> flags, const std::string& chart = kChart);

// The documents of a rendering; a failure to read it fails the test.
std::vector<nlohmann::json> Documents(const std::string& rendering);

}  // namespace trainyard::cluster_test

#define TRAINYARD_NEEDS_HELM()                                                               \
  if (const auto helm = ::trainyard::cluster_test::HelmProgram(); !helm) {                   \
    if (!::trainyard::cluster_test::ClusterRequired()) GTEST_SKIP() << helm.error().message; \
    FAIL() << helm.error().message;                                                          \
  }
