#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "operator/base/files.h"
#include "trainer/contract/contract.h"
#include "trainer/contract/flight_record.h"
#include "trainer/launch/flight.h"
#include "trainer/launch/line_tail.h"
#include "trainer/launch/outcome.h"
#include "trainer/launch/plan.h"
#include "trainer/launch/status_server.h"

namespace trainyard::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<Plan> PlanOf(const std::map<std::string, std::string>& env, const std::vector<std::string>& arguments = {}) {
  return ReadPlan(
      [&env](const char* name) {
        const auto it = env.find(name);
        return it == env.end() ? nullptr : it->second.c_str();
      },
      arguments, "/opt/trainyard-trainer");
}

TEST(Plan, DefaultsToOneProcessHere) {
  auto plan = PlanOf({});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->world_size(), 1);
  EXPECT_EQ(plan->master_addr, "127.0.0.1");
  EXPECT_EQ(plan->status_host, "127.0.0.1");
  EXPECT_THAT(plan->command, ElementsAre("/opt/trainyard-trainer"));
}

TEST(Plan, RanksFollowTheNode) {
  auto plan = PlanOf(
      {{"NNODES", "3"}, {"NODE_RANK", "2"}, {"NPROC_PER_NODE", "4"}, {"MASTER_ADDR", "m"}, {"POD_IP", "10.0.0.9"}},
      {"--", "python3", "--", "x.py"});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_THAT(plan->command, ElementsAre("python3", "--", "x.py"));
  EXPECT_EQ(plan->status_host, "");
  std::map<std::string, std::string> rank;
  for (const auto& [name, value] : RankEnvironment(*plan, 1, 7)) rank[name] = value;
  EXPECT_EQ(rank["RANK"], "9");
  EXPECT_EQ(rank["LOCAL_RANK"], "1");
  EXPECT_EQ(rank["WORLD_SIZE"], "12");
  EXPECT_EQ(rank["TRAINYARD_ROUND"], "7");
}

TEST(Plan, NamesEveryProblemAtOnce) {
  auto plan =
      PlanOf({{"NNODES", "2"}, {"NODE_RANK", "2"}, {"NPROC_PER_NODE", "many"}, {"TRAINYARD_STATUS_PORT", "99999"}});
  ASSERT_FALSE(plan);
  for (const char* part :
       {"NODE_RANK: 2", "NPROC_PER_NODE: 'many'", "MASTER_ADDR: missing", "TRAINYARD_STATUS_PORT: 99999"}) {
    EXPECT_THAT(plan.error().message, HasSubstr(part));
  }
  plan = PlanOf({{"NPROC_PER_NODE", "2"}, {"WORLD_SIZE", "3"}});
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message, HasSubstr("WORLD_SIZE: 3"));
}

TEST(LineTail, CutsLinesAndKeepsTheLast) {
  std::vector<std::string> out;
  LineTail tail("[rank 3] ", [&](const std::string& line) { out.push_back(line); });
  tail.Append("one\ntw");
  tail.Append("o\n\n");
  tail.Append("three");
  EXPECT_THAT(out, ElementsAre("[rank 3] one\n", "[rank 3] two\n", "[rank 3] \n"));
  tail.Finish();
  tail.Finish();
  EXPECT_EQ(out.size(), 4u);
  EXPECT_EQ(tail.Message(), "one\ntwo\nthree");
  tail.Append("trainyard-trainer: rank 3: disk full\nnoise of a library\n");
  EXPECT_EQ(tail.Message(), "trainyard-trainer: rank 3: disk full");
}

TEST(LineTail, BoundsEndlessLines) {
  size_t bytes = 0, lines = 0;
  LineTail tail("", [&](const std::string& line) {
    bytes += line.size() - 1;
    ++lines;
    EXPECT_LE(line.size(), LineTail::kMaxLine + 1);
  });
  tail.Append(std::string(100'000, 'x'));
  tail.Finish();
  EXPECT_EQ(bytes, 100'000u);
  EXPECT_EQ(lines, 7u);
}

TEST(Judge, TheFirstFailingRankSpeaks) {
  EXPECT_EQ(Judge({{0, 0}, {1, 0}}).exit_code, 0);
  EXPECT_EQ(Judge({{0, 10}, {1, 10}}).exit_code, contract::kExitStopped);
  const Outcome first = Judge({{2, 10}, {1, 5, 0, false, "disk full"}, {0, 3, 0, false, "later"}});
  EXPECT_EQ(first.exit_code, 5);
  EXPECT_EQ(first.rank, 1);
  EXPECT_EQ(first.message, "disk full");
}

TEST(Judge, EchoesAndOwnSignalsGiveWay) {
  const RankExit echo{0, contract::kExitCommunication, 0, false, "peer lost"};
  EXPECT_EQ(Judge({echo, {1, 7, 0, false, "out of memory"}}).exit_code, 7);
  EXPECT_EQ(Judge({echo, {1, 137, 9, true, ""}}).exit_code, contract::kExitCommunication);
  EXPECT_EQ(Judge({{1, 143, 15, true, ""}, echo}).rank, 0);
  const Outcome killed = Judge({{3, 137, 9, false, "step 7"}, echo});
  EXPECT_EQ(killed.exit_code, 137);
  EXPECT_EQ(killed.signal, 9);
  EXPECT_THAT(killed.message, HasSubstr("rank 3 was killed by signal 9"));
  EXPECT_THAT(killed.message, HasSubstr("step 7"));
}

TEST(Termination, FitsAndStaysJson) {
  for (const std::string& piece :
       {std::string("x"), std::string("\"\n"), std::string("\xe4\xbd\xa0"), std::string("\xff")}) {
    std::string message;
    while (message.size() < 20'000) message += piece;
    const std::string text = TerminationJson({5, 1, 0, message}, R"({"step": 12})");
    EXPECT_LE(text.size(), 4096u);
    const auto json = nlohmann::json::parse(text);
    EXPECT_EQ(json["class"], "Storage");
    EXPECT_EQ(json["step"], 12);
    EXPECT_FALSE(json.contains("checkpointStep"));
    EXPECT_GT(json["message"].get<std::string>().size(), 300u);
  }
}

TEST(Termination, TellsWhatNobodyCanAskAnyMore) {
  const std::string status = R"({"step": 400, "loss": 1.5, "checkpoint": {"step": 300}})";
  const auto json = nlohmann::json::parse(TerminationJson({0, -1, 0, ""}, status));
  EXPECT_EQ(json["status"], nlohmann::json::parse(status));
  EXPECT_EQ(json["step"], 400);
  EXPECT_EQ(json["checkpointStep"], 300);
  for (const char* broken : {"", "{", "[1]", "null"}) {
    EXPECT_FALSE(nlohmann::json::parse(TerminationJson({0, -1, 0, ""}, broken)).contains("status")) << broken;
  }
  const std::string long_status = R"({"step": 4, "text": ")" + std::string(5000, 'x') + R"("})";
  const auto cut = nlohmann::json::parse(TerminationJson({5, 1, 0, "disk full"}, long_status));
  EXPECT_FALSE(cut.contains("status"));
  EXPECT_EQ(cut["step"], 4);
  EXPECT_EQ(cut["message"], "disk full") << "the reason comes before the status";
}

TEST(StatusJson, HidesWhatAnEarlierRoundWrote) {
  Plan plan;
  plan.job_uid = "u";
  const View view{"Running", 2, {{0, 41, std::nullopt}, {1, 42, 3}}};
  auto json = nlohmann::json::parse(StatusJson(plan, view, R"({"round": 1, "phase": "Training", "step": 9})"));
  EXPECT_EQ(json["phase"], "Starting");
  EXPECT_EQ(json["step"], 9);
  EXPECT_EQ(json["round"], 2);
  EXPECT_EQ(json["launcher"]["ranks"][0]["pid"], 41);
  EXPECT_EQ(json["launcher"]["ranks"][1]["exitCode"], 3);
  json = nlohmann::json::parse(StatusJson(plan, view, R"({"round": 2, "phase": "Training"})"));
  EXPECT_EQ(json["phase"], "Training");
  for (const char* broken : {"", "{", "[1]", "null"}) {
    EXPECT_EQ(nlohmann::json::parse(StatusJson(plan, view, broken))["phase"], "Starting") << broken;
  }
}

FlightCall CallOf(int64_t sequence, const std::string& label, bool done, int64_t changed_ns) {
  FlightCall call;
  call.call = static_cast<uint64_t>(sequence) + 1;
  call.sequence = sequence;
  call.operation = "AllReduce";
  call.label = label;
  call.bytes = 64;
  call.done = done;
  call.changed_ns = changed_ns;
  return call;
}

TEST(Flight, TheRankThatIsBehindIsNamed) {
  const int64_t second = 1'000'000'000;
  std::vector<FlightRecord> records(3);
  for (int r = 0; r < 3; ++r) {
    records[r].rank = r;
    records[r].process_state = 'S';
    records[r].groups["world"] = CallOf(9, "reduce block.2", false, 7 * second);
  }
  EXPECT_EQ(WhoIsBehind(records, 10 * second), "");
  records[1].groups["world"] = CallOf(8, "reduce block.1", true, 6 * second);
  EXPECT_EQ(WhoIsBehind(records, 10 * second),
            "rank 1 is behind: its last call is AllReduce 'reduce block.1' (#8, 64 bytes), done 4.0 s ago; "
            "rank 0, 2 are in AllReduce 'reduce block.2' (#9, 64 bytes)");
  // Stopped within the call that the others are in.
  records[1].groups["world"] = records[0].groups["world"];
  records[1].process_state = 'T';
  EXPECT_EQ(
      WhoIsBehind(records, 10 * second),
      "rank 1 is behind: its process is stopped, its last call is AllReduce 'reduce block.2' (#9, 64 bytes), under "
      "way for 3.0 s; rank 0, 2 are in AllReduce 'reduce block.2' (#9, 64 bytes)");
  EXPECT_EQ(WhoIsBehind({}, 0), "");
}

// A group of some of the ranks says nothing of the others.
TEST(Flight, GroupsAreComparedAmongTheirMembers) {
  std::vector<FlightRecord> records(4);
  for (int r = 0; r < 4; ++r) {
    records[r].rank = r;
    records[r].groups["world"] = CallOf(3, "norm", true, 0);
    records[r].groups[r < 2 ? "world/0" : "world/1"] = CallOf(r == 3 ? 5 : 7, "gather", false, 0);
  }
  EXPECT_EQ(WhoIsBehind(records, 0),
            "rank 3 is behind: its last call is AllReduce 'gather' (#5, 64 bytes), under way for 0.0 s; "
            "rank 2 is in AllReduce 'gather' (#7, 64 bytes)");
}

TEST(Flight, OnlyWholeRecordsOfTheProcessAreRead) {
  namespace flight = contract::flight;
  const std::string file = std::filesystem::temp_directory_path() / ("trainyard-flight-" + std::to_string(getpid()));
  std::string bytes(flight::kFileBytes, '\0');
  flight::Header header{};
  std::memcpy(header.magic, flight::kMagic, sizeof header.magic);
  header.format = flight::kFormat;
  header.entries = flight::kEntries;
  header.rank = 4;
  header.pid = 77;
  flight::Entry entry{};
  entry.version = 2;
  entry.phase = flight::kUnderWay;
  entry.started_ns = 5;
  std::strcpy(entry.operation, "AllGather");
  std::strcpy(entry.group, "world");
  const auto put = [&](uint64_t call, int64_t sequence, uint64_t version, const std::string& label) {
    entry.call = call;
    entry.sequence = sequence;
    entry.version = version;
    std::strcpy(entry.label, label.c_str());
    std::memcpy(bytes.data() + sizeof header + call % flight::kEntries * sizeof entry, &entry, sizeof entry);
  };
  put(300, 40, 2, "newest whole one");  // the ring has gone round
  put(299, 39, 2, "before it");
  put(301, 41, 3, "being written");
  put(302, -1, 2, "a message");
  std::memcpy(bytes.data(), &header, sizeof header);
  ASSERT_TRUE(WriteFileAtomically(file, bytes));
  const auto record = ReadFlightRecord(file, 77);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->rank, 4);
  ASSERT_EQ(record->groups.size(), 1U);
  EXPECT_EQ(record->groups.at("world").Text(), "AllGather 'newest whole one' (#40, 0 bytes)");
  EXPECT_FALSE(record->groups.at("world").done);
  EXPECT_EQ(record->groups.at("world").changed_ns, 5);
  EXPECT_FALSE(ReadFlightRecord(file, 78)) << "of an earlier round";
  ASSERT_TRUE(WriteFileAtomically(file, bytes.substr(0, 1000)));
  EXPECT_FALSE(ReadFlightRecord(file, 77));
  std::filesystem::remove(file);
  EXPECT_FALSE(ReadFlightRecord(file, 77));
  EXPECT_EQ(ProcessState(getpid()), 'R');
  EXPECT_EQ(ProcessState(-1), '?');
}

}  // namespace
}  // namespace trainyard::launch
