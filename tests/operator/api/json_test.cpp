#include "operator/api/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "operator/api/defaults.h"
#include "tests/operator/api/sample_jobs.h"

namespace trainyard::api {
namespace {

using nlohmann::json;

TEST(JobJson, RoundTripsAFullyPopulatedJob) {
  json first = JobToJson(FullJob());
  auto back = JobFromJson(json::parse(first.dump()));
  ASSERT_TRUE(back.has_value()) << back.error().message;
  EXPECT_EQ(JobToJson(*back), first);
  // Values that a careless reader would lose.
  EXPECT_EQ(back->spec.training.seed, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(back->status.retry_after, FullJob().status.retry_after);
  EXPECT_EQ(back->spec.training.optimizer.epsilon, 1e-9);
  EXPECT_TRUE(back->spec.volumes[0].empty_dir);
}

TEST(JobJson, KeepsTheShapesThatUsersWrite) {
  json spec = SpecToJson(FullJob().spec);
  EXPECT_EQ(spec["checkpoint"]["every"]["steps"], 50);
  EXPECT_EQ(spec["recovery"]["maxRestarts"]["infrastructure"], 9);
  EXPECT_EQ(spec["volumes"][0]["persistentVolumeClaim"]["claimName"], "corpus-claim");
  EXPECT_EQ(spec["volumes"][0]["hostPath"]["path"], "/data");
  EXPECT_EQ(spec["volumes"][0]["emptyDir"], json::object());
  EXPECT_EQ(spec["parallelism"]["strategy"], "ZeRO2");
}

TEST(JobJson, ReadsParametersAsIntegerOrString) {
  json manifest = MinimalImageManifest();
  manifest["spec"]["model"]["parameters"] = 7000000000;
  EXPECT_EQ(JobFromJson(manifest)->spec.model.parameters, "7000000000");
  manifest["spec"]["model"]["parameters"] = 7e9;
  EXPECT_EQ(JobFromJson(manifest)->spec.model.parameters, "7000000000");
  manifest["spec"]["model"]["parameters"] = "1.1T";
  EXPECT_EQ(JobFromJson(manifest)->spec.model.parameters, "1.1T");
}

TEST(JobJson, TakesNullForAbsent) {
  json manifest = MinimalTrainerManifest();
  manifest["spec"]["training"] = nullptr;
  manifest["spec"]["gpus"] = {{"count", nullptr}};
  manifest["metadata"]["creationTimestamp"] = nullptr;
  auto job = JobFromJson(manifest);
  ASSERT_TRUE(job.has_value()) << job.error().message;
  EXPECT_EQ(job->spec.training.steps, 1000);
}

TEST(JobJson, ToleratesWhatServersAddOutsideOfSpec) {
  json manifest = MinimalTrainerManifest();
  manifest["metadata"]["managedFields"] = json::array({{{"manager", "kubectl"}}});
  manifest["status"] = {{"phase", "Running"}, {"goodput", 0.9}};
  auto job = JobFromJson(manifest);
  ASSERT_TRUE(job.has_value()) << job.error().message;
  EXPECT_EQ(job->status.phase, Phase::kRunning);
}

TEST(JobJson, LeavesOutNumbersThatJsonCannotHold) {
  JobStatus status;
  status.progress = Progress{.step = 3, .loss = std::numeric_limits<double>::quiet_NaN()};
  json out = StatusToJson(status);
  EXPECT_EQ(out["progress"]["step"], 3);
  EXPECT_FALSE(out["progress"].contains("loss"));
}

// Each case replaces one member of a good manifest; the message is what the user sees.
TEST(JobJson, NamesPathAndFindingOfBadInput) {
  struct Case {
    const char* pointer;
    const char* value;
    const char* message;
  };
  const Case cases[] = {
      {"/spec/gpus/cout", "4", "spec.gpus.cout: unknown field; did you mean 'count'?"},
      {"/spec/model/architecture/Layers", "4", "spec.model.architecture.Layers: unknown field; did you mean 'layers'?"},
      {"/spec/quantumLinks", "{}",
       "spec.quantumLinks: unknown field; known are model, data, training, parallelism, gpus, "},
      {"/specs", "{}", "specs: unknown field; did you mean 'spec'?"},
      {"/spec/gpus/count", "\"4\"",
       "spec.gpus.count: expected an integer, found string \"4\"; write it without quotes"},
      {"/spec/gpus/count", "4.5", "spec.gpus.count: expected an integer, found number 4.5"},
      {"/spec/gpus/count", "18446744073709551615",
       "spec.gpus.count: number 18446744073709551615 does not fit into 64 bits"},
      {"/spec/gpus/count", "1e300", "spec.gpus.count: number 1e+300 does not fit into 64 bits"},
      {"/spec/gpus", "[4]", "spec.gpus: expected an object, found a list"},
      {"/spec/training/steps", "true", "spec.training.steps: expected an integer, found true"},
      {"/spec/training/gradientClipNorm", "\"1\"",
       "spec.training.gradientClipNorm: expected a number, found string \"1\"; write it without quotes"},
      {"/spec/suspend", "\"yes\"", "spec.suspend: expected true or false, found string \"yes\""},
      {"/spec/image", "7", "spec.image: expected a string, found number 7; write it in quotes"},
      {"/spec/env", R"([{"name": "A", "value": 1}])",
       "spec.env[0].value: expected a string, found number 1; write it in quotes"},
      {"/spec/data/train", R"("train.txt")", "spec.data.train: expected a list, found string \"train.txt\""},
      {"/spec/data/train/0/mode", "1", "spec.data.train[0].mode: unknown field; known are volume, path, weight"},
      {"/spec/data/format", "\"text\"",
       "spec.data.format: string \"text\" is not a value of this field; did you mean 'Text'?"},
      {"/spec/parallelism", R"({"strategy": "Zero3"})",
       "spec.parallelism.strategy: string \"Zero3\" is not a value of this field; did you mean 'ZeRO1'?"},
      {"/spec/parallelism", R"({"strategy": "pipeline"})",
       "spec.parallelism.strategy: string \"pipeline\" is not a value of this field; known are Auto, DDP, ZeRO1, "
       "ZeRO2, FSDP, HSDP"},
      {"/spec/model/parameters", "7.5",
       "spec.model.parameters: expected an integer or a string such as 7B, found number 7.5"},
      {"/spec/checkpoint/every", R"({"hours": 1})",
       "spec.checkpoint.every.hours: unknown field; known are steps, minutes"},
      {"/spec/volumes/0/emptyDir", R"({"medium": "Memory"})",
       "spec.volumes[0].emptyDir.medium: unknown field; none is known here"},
      {"/spec", "null", "spec: is required"},
      {"/apiVersion", "\"trainyard.dev/v1\"",
       "apiVersion: string \"trainyard.dev/v1\" is not 'trainyard.dev/v1alpha1'"},
      {"/kind", "null", "kind: is required: 'TrainingJob'"},
      {"/metadata/labels", R"({"a": 1})", "metadata.labels[a]: expected a string, found number 1; write it in quotes"},
      {"/status", R"({"startTime": "noon"})",
       "status.startTime: string \"noon\" is not a UTC time such as 2026-01-31T12:00:00Z"},
  };
  for (const Case& c : cases) {
    json manifest = MinimalTrainerManifest();
    manifest[json::json_pointer(c.pointer)] = json::parse(c.value);
    auto job = JobFromJson(manifest);
    ASSERT_FALSE(job.has_value()) << c.pointer << " = " << c.value;
    EXPECT_EQ(job.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(job.error().message, testing::StartsWith(c.message));
  }
}

TEST(JobJson, CollectsEveryProblem) {
  json manifest = MinimalTrainerManifest();
  manifest["spec"]["gpus"] = {{"cout", 1}, {"perNode", "x"}};
  manifest["spec"]["suspend"] = 1;
  std::vector<std::string> errors;
  ReadJob(manifest, errors);
  EXPECT_EQ(errors.size(), 3u);
  EXPECT_THAT(JobFromJson(manifest).error().message, testing::EndsWith("(and 2 more)"));
}

TEST(JobJson, KeepsMessagesOnOneShortLine) {
  json manifest = MinimalTrainerManifest();
  manifest["spec"]["image"] = json::array();
  manifest["spec"]["a\nb" + std::string(5000, 'x')] = 1;
  manifest["spec"]["gpus"] = {{"nvlink", std::string(5000, 'y')}};
  std::vector<std::string> errors;
  ReadJob(manifest, errors);
  ASSERT_EQ(errors.size(), 3u);
  for (const std::string& error : errors) {
    EXPECT_LT(error.size(), 300u) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos);
  }
}

TEST(Defaults, FillInWhatFollowsFromOtherFieldsOnce) {
  TrainingJob job = JobFromJson(MinimalTrainerManifest()).value();
  ApplyDefaults(job);
  const Architecture& a = *job.spec.model.architecture;
  EXPECT_EQ(a.kv_heads, 8);
  EXPECT_EQ(a.ffn_size, 688);  // 8/3 * 256 = 682.7 -> 688
  EXPECT_EQ(a.vocab_size, 256);
  EXPECT_EQ(a.max_positions, 4096);
  EXPECT_EQ(job.spec.checkpoint->path, "tiny");
  json once = JobToJson(job);
  ApplyDefaults(job);
  EXPECT_EQ(JobToJson(job), once);
}

TEST(Defaults, TouchNothingThatIsSet) {
  TrainingJob job = FullJob();
  ApplyDefaults(job);
  EXPECT_EQ(JobToJson(job), JobToJson(FullJob()));
}

}  // namespace
}  // namespace trainyard::api
