// Every output that docs/examples/placement.md shows is what the programs make of the cluster of scenes.h: a block that
// opens with "$ trainyard top..." holds exactly what the command prints, one that opens with "$ kubectl get
// trainingjob NAME ..." what the operator decides on the job of that name, whose YAML stands in the same file.
// UPDATE_GOLDEN=1 writes the blocks anew.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "operator/api/json.h"
#include "operator/api/names.h"
#include "operator/api/yaml.h"
#include "operator/base/files.h"
#include "operator/cli/exit_codes.h"
#include "operator/cli/top/read_cluster.h"
#include "operator/cli/top/top_command.h"
#include "operator/cli/topology_command.h"
#include "operator/lifecycle/lifecycle.h"
#include "tests/operator/cli/top/scenes.h"

namespace trainyard::cli {
namespace {

const std::string kTopology = "$ trainyard topology ";
const std::string kTop = "$ trainyard top";
const std::string kReason = "$ kubectl get trainingjob ";
constexpr const char* kDocument = TRAINYARD_SOURCE_DIR "/docs/examples/placement.md";

std::string TopOf(const std::string& arguments) {
  ListedObjects scene = SceneOfTheDocs();
  int exit_code = -1;
  std::ostringstream out, err;
  const FakeClock clock(SceneTime());
  CLI::App app("trainyard");
  AddTopCommand(app, exit_code, {out, err, clock, [&](const TopFlags&) -> Result<std::unique_ptr<cluster::Cluster>> {
                                   return std::make_unique<ListingCluster>(scene);
                                 }});
  app.parse("top " + arguments);
  EXPECT_EQ(exit_code, kExitOk) << err.str();
  return out.str();
}

// `file` is a path in the repository.
std::string TopologyOf(const std::string& file) {
  int exit_code = -1;
  std::ostringstream out, err;
  CLI::App app("trainyard");
  AddTopologyCommand(app, exit_code, out, err);
  app.parse("topology " TRAINYARD_SOURCE_DIR "/" + file);
  EXPECT_EQ(err.str(), "");
  return out.str();
}

// The jobs whose YAML stands in the document, by name.
std::map<std::string, api::TrainingJob> JobsOf(const std::string& text) {
  std::map<std::string, api::TrainingJob> jobs;
  std::istringstream in(text);
  std::string line, block;
  bool inside = false;
  while (std::getline(in, line)) {
    if (line == "```yaml") {
      inside = true;
      block.clear();
    } else if (line.starts_with("```") && inside) {
      inside = false;
      const auto documents = api::LoadYaml(block, kDocument);
      EXPECT_TRUE(documents.has_value()) << block;
      const auto job = api::JobFromJson(documents->at(0));
      EXPECT_TRUE(job.has_value()) << job.error().message;
      jobs[job->meta.name] = *job;
    } else if (inside) {
      block += line + "\n";
    }
  }
  return jobs;
}

// What the operator would do with the job: `behind` is new, the others are older than all that wait, so that nobody's
// turn but their own decides.
lifecycle::Decision DecisionOn(api::TrainingJob job) {
  ListedObjects scene = SceneOfTheDocs();
  ListingCluster cluster(scene);
  const auto seen = ReadCluster(cluster);
  EXPECT_TRUE(seen.has_value());
  lifecycle::Options options;
  lifecycle::Input input;
  input.now = SceneTime();
  input.nodes = seen->nodes;
  input.all_pods = seen->pods;
  input.priority_classes = seen->priority_classes;
  for (const controller::JobRecord& other : seen->jobs) {
    input.other_claims.insert(input.other_claims.end(), other.bookings.begin(), other.bookings.end());
    const auto priority = lifecycle::FindPriority(seen->priority_classes, other.job.spec.priority_class_name);
    EXPECT_TRUE(priority.has_value()) << other.key.name;
    if (auto gang = lifecycle::WaitingOf(other.job, options, *priority)) input.waiting.push_back(*gang);
    if (auto gang = lifecycle::RunningOf(other.job, *priority)) input.running.push_back(*gang);
  }
  job.meta.ns = "default";
  job.meta.uid = "uid-" + job.meta.name;
  job.meta.generation = 1;
  job.meta.creation_time = SceneTime() - std::chrono::hours(job.meta.name == "behind" ? 1 : 3);
  input.job = job;
  return lifecycle::Decide(input, options);
}

std::string ReasonOf(const std::string& name, const std::map<std::string, api::TrainingJob>& jobs) {
  const auto job = jobs.find(name);
  if (job == jobs.end()) {
    ADD_FAILURE() << name << ": its YAML is not in the document";
    return "";
  }
  const api::JobStatus status = DecisionOn(job->second).status;
  EXPECT_FALSE(status.placement.has_value()) << name << " has a place: " << status.reason;
  return std::string(api::ToString(status.phase)) + ": " + status.reason + "\n";
}

// The same text with every block of a command made anew; the commands are appended to `commands`.
std::string Regenerated(const std::string& text, std::vector<std::string>& commands) {
  const auto jobs = JobsOf(text);
  std::istringstream in(text);
  std::string out, line;
  bool inside = false;    // of any fenced block
  bool skipping = false;  // the old output of a command
  while (std::getline(in, line)) {
    if (line.starts_with("```")) {
      inside = !inside;
      skipping = false;
    }
    if (skipping) continue;
    out += line + "\n";
    if (!inside || !line.starts_with("$ ")) continue;
    commands.push_back(line);
    skipping = true;
    if (line.starts_with(kTopology)) {
      out += TopologyOf(line.substr(kTopology.size()));
    } else if (line.starts_with(kTop)) {
      out += TopOf(line.substr(kTop.size()));
    } else if (line.starts_with(kReason)) {
      out += ReasonOf(line.substr(kReason.size(), line.find(' ', kReason.size()) - kReason.size()), jobs);
    } else {
      ADD_FAILURE() << "nobody makes the output of: " << line;
    }
  }
  return out;
}

TEST(PlacementDocs, ShowWhatTheProgramsPrint) {
  const std::string text = ReadFile(kDocument).value();
  std::vector<std::string> commands;
  const std::string anew = Regenerated(text, commands);
  const char* update = std::getenv("UPDATE_GOLDEN");
  if (update != nullptr && std::string(update) == "1") {
    std::ofstream(kDocument) << anew;
    return;
  }
  EXPECT_EQ(text, anew) << "docs/examples/placement.md shows another output; if the new one is meant, run with "
                           "UPDATE_GOLDEN=1";
}

// The five reasons differ, and each speaks of what it should.
TEST(PlacementDocs, FiveJobsWaitForFiveReasons) {
  const auto jobs = JobsOf(ReadFile(kDocument).value());
  const std::pair<const char*, const char*> expected[] = {{"one-domain", "of one NVLink domain"},
                                                          {"behind", "behind default/large"},
                                                          {"one-rack", "rack"},
                                                          {"picky", "example.com/disk=nvme"},
                                                          {"too-large", "needs 16 nodes"}};
  for (const auto& [name, words] : expected) {
    const std::string reason = ReasonOf(name, jobs);
    EXPECT_THAT(reason, testing::StartsWith("Queued: ")) << name;
    EXPECT_THAT(reason, testing::HasSubstr(words)) << name;
  }
  EXPECT_THAT(ReasonOf("misspelled", jobs),
              testing::AllOf(testing::StartsWith("Pending: "), testing::HasSubstr("prodution"),
                             testing::HasSubstr("production")));
}

}  // namespace
}  // namespace trainyard::cli
