// The tables of figures in docs/placement.md are those of docs/benchmarks/placement.json. UPDATE_GOLDEN=1 writes them
// anew.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace trainyard::placement {
namespace {

constexpr const char* kDocument = TRAINYARD_SOURCE_DIR "/docs/placement.md";
constexpr const char* kFigures = TRAINYARD_SOURCE_DIR "/docs/benchmarks/placement.json";

std::string ReadText(const char* path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// By the name of the row.
std::map<std::string, nlohmann::json> Figures() {
  std::map<std::string, nlohmann::json> rows;
  const nlohmann::json file = nlohmann::json::parse(ReadText(kFigures));
  for (const nlohmann::json& row : file.at("rows")) rows[row.at("name")] = row;
  return rows;
}

// Two significant digits.
std::string Short(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), std::abs(value) >= 99.5 ? "%.0f" : "%.2g", value);
  return text;
}

std::string Percent(double share) { return std::to_string(std::lround(100 * share)) + " %"; }

class Tables {
 public:
  // A table: its header as the document has it, and the rows below.
  std::map<std::string, std::string> All() const {
    return {{"| nodes | decision, median | 99th percentile |", Decisions()},
            {"| nodes chosen by | gangs in one rack | racks per gang | wait: parts of a node | 1 to 4 nodes | 5 to 16 "
             "nodes |",
             Days()},
            {"| what | measured | without the operator | target |", Targets()}};
  }

 private:
  double Value(const std::string& row) const { return figures_.at(row).at("value"); }
  double Baseline(const std::string& row) const { return figures_.at(row).at("baseline").at("value"); }

  std::string Decisions() const {
    std::string text;
    for (const auto& [nodes, words] :
         std::map<int, std::string>{{640, "640"}, {2500, "2,500"}, {5000, "5,000"}, {20000, "20,000"}}) {
      const auto of = [&, n = nodes](const char* quantile) {
        return Short(Value("decision_" + std::string(quantile) + "_" + std::to_string(n) + "_nodes")) + " ms";
      };
      text += "| " + words + " | " + of("p50") + " | " + of("p99") + " |\n";
    }
    return text;
  }

  std::string Days() const {
    const auto row = [](const std::string& way, const auto& of) {
      const auto wait = [&of](const std::string& size) { return Short(of("sim_wait_p95_" + size)) + " min"; };
      return "| " + way + " | " + Percent(of("sim_one_rack_share")) + " | " + Short(of("sim_racks_per_gang")) + " | " +
             wait("small") + " | " + wait("medium") + " | " + wait("large") + " |\n";
    };
    const auto best = [this](const std::string& name) { return Value(name); };
    const auto line = [this](const std::string& name) { return Value(name + "_line"); };
    const auto first = [this](const std::string& name) { return Baseline(name); };
    const auto spread = [this](const std::string& name) { return Value(name + "_spread"); };
    return row("best fit", best) + row("best fit, and the queue of the operator", line) +
           row("first fit by name", first) + row("spread", spread);
  }

  std::string Targets() const {
    const auto row = [this](const std::string& what, const std::string& name) {
      const nlohmann::json& figure = figures_.at(name);
      const std::string unit = " " + figure.at("unit").get<std::string>();
      std::string target = "none";
      if (figure.contains("target")) {
        const bool met = figure.at("value") <= figure.at("target");
        target = "under " + Short(figure.at("target")) + unit + (met ? "" : ": missed");
      }
      const bool bare = figure.at("baseline").at("name") == "bare_pods_bound";
      return "| " + what + " | " + Short(figure.at("value")) + unit + " | " +
             (bare ? Short(Baseline(name)) + unit : "") + " | " + target + " |\n";
    };
    return row("decision, 5,000 nodes, 99th percentile", "decision_p99_5000_nodes") +
           row("the queue formed, 1,000 jobs that fit, 500 nodes", "line_1000_waiting") +
           row("the queue formed, 4,000 jobs that fit, 500 nodes", "line_4000_waiting") +
           row("the queue formed, 4,000 jobs of which few fit, 500 nodes", "line_4000_blocked") +
           row("one gang of 512 pods on 512 nodes: created, until all are bound", "gang_512_bound") +
           row("4,000 jobs of one GPU on 500 nodes: created, until all are bound", "jobs_4000_bound") +
           row("a job that no node can hold: created, until its status says why", "time_to_reason");
  }

  const std::map<std::string, nlohmann::json> figures_ = Figures();
};

// `text` with other rows in the table of this header; the rows that it had go to `had`.
std::string WithRows(const std::string& text, const std::string& header, const std::string& rows, std::string& had) {
  std::istringstream lines(text);
  std::string out;
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (inside && !line.starts_with("|")) inside = false;
    const bool row = inside && !line.starts_with("| ---");
    if (row) had += line + "\n";
    if (!row) out += line + "\n";
    if (line == header) inside = true;
    if (inside && line.starts_with("| ---")) out += rows;
  }
  return out;
}

TEST(Figures, OfTheDocumentAreThoseOfTheBenchmark) {
  const bool update = std::getenv("UPDATE_GOLDEN") != nullptr;
  std::string text = ReadText(kDocument);
  for (const auto& [header, rows] : Tables().All()) {
    std::string had;
    text = WithRows(text, header, rows, had);
    if (!update) {
      EXPECT_EQ(had, rows) << header;
    }
  }
  if (update) std::ofstream(kDocument) << text;
}

}  // namespace
}  // namespace trainyard::placement
