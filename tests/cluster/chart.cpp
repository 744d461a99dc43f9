#include "tests/cluster/chart.h"

#include <cstdlib>
#include <sstream>

#include "operator/api/yaml.h"

namespace trainyard::cluster_test {

Result<std::string> HelmProgram() {
  static const Result<std::string> program = []() -> Result<std::string> {
    const std::string scripts = TRAINYARD_SOURCE_DIR "/tests/cluster/";
    const Ran set_up = RunProgram({"bash", scripts + "setup.sh", "helm"});
    if (set_up.code != 0) return Fail(ErrorCode::kFailedPrecondition, "no helm: " + set_up.err);
    const Ran where = RunProgram({"bash", "-c", "source \"$1/lib.sh\" && ls \"$cache\"/helm-*/helm", "-", scripts});
    std::istringstream lines(where.out);
    std::string first;
    if (where.code != 0 || !std::getline(lines, first)) {
      return Fail(ErrorCode::kFailedPrecondition, "helm was set up but is not in the cache: " + where.err);
    }
    return first;
  }();
  return program;
}

Ran Helm(std::vector<std::string> arguments) {
  const Result<std::string> program = HelmProgram();
  if (!program) return {.code = 127, .out = "", .err = program.error().message};
  arguments.insert(arguments.begin(), *program);
  Ran ran = RunProgram(arguments);
  std::istringstream lines(std::exchange(ran.err, ""));
  for (std::string line; std::getline(lines, line);) {
    if (line.find("found symbolic link in path") == std::string::npos) ran.err += line + "\n";
  }
  return ran;
}

Ran Render(std::vector<std::string> flags, const std::string& chart) {
  flags.insert(flags.begin(), {"template", "trainyard", chart, "--namespace", "trainyard-system"});
  return Helm(std::move(flags));
}

std::vector<nlohmann::json> Documents(const std::string& rendering) {
  auto documents = api::LoadYaml(rendering, "helm template");
  EXPECT_TRUE(documents) << documents.error().message;
  return documents ? *documents : std::vector<nlohmann::json>();
}

}  // namespace trainyard::cluster_test
