// What every benchmark prints and writes: rows of a measured value against a baseline that alternated with it in the
// same run. The JSON form is that of docs/benchmarks. Thread-safety: plain values.
#pragma once

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace trainyard::bench {

inline double Quantile(std::vector<double> samples, double q) {
  std::sort(samples.begin(), samples.end());
  const double at = q * static_cast<double>(samples.size() - 1);
  const auto lo = static_cast<size_t>(at);
  const size_t hi = std::min(lo + 1, samples.size() - 1);
  return samples[lo] + (samples[hi] - samples[lo]) * (at - static_cast<double>(lo));
}
inline double Median(const std::vector<double>& samples) { return Quantile(samples, 0.5); }
// Half of the interquartile range.
inline double Spread(const std::vector<double>& samples) {
  return 0.5 * (Quantile(samples, 0.75) - Quantile(samples, 0.25));
}

struct Row {
  std::string name;
  double value = 0, spread = 0;
  std::string unit;
  std::string baseline;
  double baseline_value = 0;
  double ratio = 0, ratio_spread = 0;
  std::string better;  // "higher" or "lower"
  double target = 0;   // of the ratio when target_of_ratio, else of the value; 0: none
  bool target_of_ratio = true;

  bool Met() const {
    const double x = target_of_ratio ? ratio : value;
    return target == 0 || (better == "higher" ? x >= target : x <= target);
  }
};

// A row from alternating samples; sample i of both sides was taken one right after the other, and the ratio is the
// median over these pairs.
inline Row FromPairs(std::string name, std::string unit, const std::vector<double>& measured, std::string baseline,
                     const std::vector<double>& base, std::string better, double ratio_target) {
  std::vector<double> ratios;
  for (size_t i = 0; i < measured.size(); ++i) ratios.push_back(measured[i] / base[i]);
  Row row;
  row.name = std::move(name), row.unit = std::move(unit), row.baseline = std::move(baseline);
  row.better = std::move(better), row.target = ratio_target;
  row.value = Median(measured), row.spread = Spread(measured), row.baseline_value = Median(base);
  row.ratio = Median(ratios), row.ratio_spread = Spread(ratios);
  return row;
}

inline std::string FirstLine(const char* command) {
  std::string line;
  if (FILE* pipe = popen(command, "r")) {
    char buffer[256];
    if (std::fgets(buffer, sizeof(buffer), pipe)) line = buffer;
    pclose(pipe);
  }
  while (!line.empty() && (line.back() == '\n' || line.back() == ' ')) line.pop_back();
  return line;
}

inline std::string Machine() {
  std::ifstream cpus("/proc/cpuinfo");
  std::string line, model = "unknown processor";
  while (std::getline(cpus, line)) {
    if (line.rfind("model name", 0) == 0) {
      model = line.substr(line.find(':') + 2);
      break;
    }
  }
  return model + ", " + std::to_string(std::thread::hardware_concurrency()) + " threads";
}

inline void PrintTable(const std::vector<Row>& rows) {
  std::printf("%-44s %12s %9s  %-10s %-28s %12s %7s %7s  %s\n", "name", "value", "spread", "unit", "baseline", "value",
              "ratio", "spread", "target");
  for (const Row& r : rows) {
    char target[64] = "-";
    if (r.target != 0) {
      std::snprintf(target, sizeof(target), "%s %s %.4g: %s", r.target_of_ratio ? "ratio" : "value",
                    r.better == "higher" ? ">=" : "<=", r.target, r.Met() ? "met" : "MISSED");
    }
    std::printf("%-44s %12.5g %9.3g  %-10s %-28s %12.5g %7.3f %7.3f  %s\n", r.name.c_str(), r.value, r.spread,
                r.unit.c_str(), r.baseline.c_str(), r.baseline_value, r.ratio, r.ratio_spread, target);
  }
}

// Writes a new file; with `keep_others`, rows that `file` has under other names stay, in their order, since several
// programs may fill one file. False when the file cannot be written, or cannot be read as what it should be.
inline bool WriteJson(const std::string& file, const std::vector<Row>& rows, bool keep_others = false) {
  char date[32];
  const std::time_t now = std::time(nullptr);
  std::strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  nlohmann::json json = {{"machine", Machine()},
                         {"commit", FirstLine("git -C '" TRAINYARD_SOURCE_DIR "' rev-parse --short HEAD 2>/dev/null")},
                         {"date", date},
                         {"rows", nlohmann::json::array()}};
  if (std::ifstream before(file); keep_others && before) {
    const nlohmann::json found = nlohmann::json::parse(before, nullptr, /*allow_exceptions=*/false);
    if (!found.is_object() || !found.contains("rows") || !found["rows"].is_array()) return false;
    for (const nlohmann::json& row : found["rows"]) {
      const auto same = [&](const Row& r) { return row.value("name", "") == r.name; };
      if (std::none_of(rows.begin(), rows.end(), same)) json["rows"].push_back(row);
    }
  }
  for (const Row& r : rows) {
    nlohmann::json row = {{"name", r.name},
                          {"value", r.value},
                          {"spread", r.spread},
                          {"unit", r.unit},
                          {"baseline", {{"name", r.baseline}, {"value", r.baseline_value}}},
                          {"ratio", r.ratio},
                          {"ratioSpread", r.ratio_spread},
                          {"better", r.better}};
    if (r.target != 0) row["target"] = r.target, row["target_of"] = r.target_of_ratio ? "ratio" : "value";
    json["rows"].push_back(std::move(row));
  }
  std::ofstream out(file);
  out << json.dump(2) << "\n";
  out.flush();
  return out.good();
}

}  // namespace trainyard::bench
