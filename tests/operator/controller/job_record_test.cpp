// Whatever the API server hands out as a TrainingJob becomes a record: one that cannot be read names its problem.
#include "operator/controller/job_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard::controller {
namespace {

using nlohmann::json;

TEST(JobRecord, PoisonOfAnyKindBecomesARecordWithAProblem) {
  const json meta = {{"namespace", "default"}, {"name", "poison"}, {"uid", "u"}, {"resourceVersion", "7"}};
  json deep = 1;
  for (int i = 0; i < 300; ++i) deep = json::array({deep});
  const std::vector<json> poison = {
      nullptr,
      5,
      "text",
      json::array(),
      json::object(),
      {{"metadata", 5}},
      {{"metadata", {{"name", 7}, {"namespace", json::array()}, {"generation", "many"}}}, {"spec", json::object()}},
      {{"metadata", meta}},
      {{"metadata", meta}, {"spec", nullptr}},
      {{"metadata", meta}, {"spec", "words"}},
      {{"metadata", meta}, {"spec", json::array({1, 2})}},
      {{"metadata", meta}, {"spec", {{"model", 5}, {"gpus", "all"}, {"volumes", {{"a", 1}}}}}},
      {{"metadata", meta}, {"spec", {{"gpus", {{"count", 1e300}}}, {"model", {{"parameters", -1}}}}}},
      {{"metadata", meta}, {"spec", {{"model", deep}}}},
      {{"metadata", meta}, {"spec", {{"image", std::string("\xff\xfe not utf-8")}, {"colour", "blue"}}}},
  };
  for (const json& object : poison) {
    const std::string text = object.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 200);
    JobRecord record;
    EXPECT_NO_THROW(record = MakeJobRecord(object)) << text;
    EXPECT_FALSE(record.problem.empty()) << text;
    EXPECT_EQ(record.problem.find('\n'), std::string::npos) << record.problem;
    EXPECT_NO_THROW((void)record.Object()) << text;
    api::JobStatus status;
    EXPECT_NO_THROW(status = StatusOfProblem(record, TimePoint())) << text;
    EXPECT_THAT(status.reason, testing::HasSubstr("cannot be read"));
    EXPECT_EQ(status.conditions.back().reason, "InvalidSpec");
  }
}

TEST(JobRecord, AStatusThatCannotBeReadIsToldApartFromASpec) {
  const json good = {{"model", {{"parameters", "125M"}}}, {"gpus", {{"count", 1}}}};
  const json bad = {{"x", 1}};
  const auto job = [](const json& spec, const json& status) {
    return json{{"apiVersion", api::kApiVersion},
                {"kind", api::kKind},
                {"metadata", {{"name", "a"}, {"uid", "u"}}},
                {"spec", spec},
                {"status", status}};
  };
  const std::vector<std::pair<json, std::string>> statuses = {
      {5, "status"},
      {{{"phase", "Hibernating"}, {"attempt", 7}}, "status.phase"},
      {{{"attempt", "one"}}, "status.attempt"},
      {{{"placement", {{"nodes", {1, 2}}}}}, "status.placement"},
      {{{"conditions", "none"}}, "status.conditions"},
  };
  for (const auto& [status, field] : statuses) {
    for (const json& spec : {good, bad}) {
      const JobRecord record = MakeJobRecord(job(spec, status));
      EXPECT_THAT(record.status_problem, testing::HasSubstr(field)) << status;
      EXPECT_EQ(record.problem.empty(), spec == good) << record.problem;
      EXPECT_EQ(record.problem.find("status"), std::string::npos) << record.problem;
      EXPECT_TRUE(record.bookings.empty());
    }
  }
  const JobRecord readable = MakeJobRecord(job(bad, {{"phase", "Running"}, {"attempt", 7}}));
  EXPECT_EQ(readable.status_problem, "");
  EXPECT_NE(readable.problem, "");
  EXPECT_EQ(StatusOfProblem(readable, TimePoint()).attempt, 7) << "what it says is kept";
}

TEST(JobRecord, HasNoProblemWithAJobOfAnotherController) {
  json object = {{"metadata", {{"name", "a"}, {"uid", "u"}}}, {"spec", {{"model", 7}}}};
  EXPECT_NE(MakeJobRecord(object).problem, "");
  object["status"] = {{"phase", "Theirs"}};
  EXPECT_NE(MakeJobRecord(object).status_problem, "");
  object["spec"]["managedBy"] = "example.com/other";
  EXPECT_EQ(MakeJobRecord(object).problem, "");
  EXPECT_EQ(MakeJobRecord(object).status_problem, "");
  EXPECT_FALSE(MakeJobRecord(object).job.spec.IsOurs());
}

}  // namespace
}  // namespace trainyard::controller
