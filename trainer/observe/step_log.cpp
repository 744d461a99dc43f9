#include "trainer/observe/step_log.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

namespace trainyard::observe {

double Round9(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", value);
  return std::strtod(text, nullptr);
}

std::string ToJson(const StepRecord& record) {
  nlohmann::ordered_json json;
  json["step"] = record.step;
  const auto put = [&json](const char* name, double value) {
    if (std::isfinite(value)) json[name] = Round9(value);
  };
  put("loss", record.loss);
  put("learningRate", record.learning_rate);
  put("gradientNorm", record.gradient_norm);
  json["tokens"] = record.tokens;
  put("tokensPerSecond", record.tokens_per_second);
  if (record.mfu) put("mfu", *record.mfu);
  put("stepSeconds", record.step_seconds);
  put("dataSeconds", record.data_seconds);
  put("computeSeconds", record.compute_seconds);
  put("communicationSeconds", record.communication_seconds);
  put("optimizerSeconds", record.optimizer_seconds);
  put("checkpointSeconds", record.checkpoint_seconds);
  json["cursor"] = record.cursor;
  if (record.ranks) {
    const auto rounded = [](const std::vector<double>& values) {
      nlohmann::ordered_json list = nlohmann::ordered_json::array();
      for (const double value : values) list.push_back(Round9(value));
      return list;
    };
    json["ranks"] = {{"peakBytes", record.ranks->peak_bytes},
                     {"residentBytes", record.ranks->resident_bytes},
                     {"dataSeconds", rounded(record.ranks->data_seconds)},
                     {"computeSeconds", rounded(record.ranks->compute_seconds)},
                     {"communicationSeconds", rounded(record.ranks->communication_seconds)}};
  }
  if (record.skipped_steps > 0) json["skippedSteps"] = record.skipped_steps;
  return json.dump();
}

Result<StepLog> StepLog::Open(const std::string& path) {
  auto file = AppendFile::Open(path, "step log");
  if (!file) return Fail(file.error());
  auto ended = file->EndsWith('\n');
  if (!ended) return Fail(ended.error());
  if (!*ended) {
    if (Status end = file->Append("\n"); !end) return Fail(end.error());
  }
  return StepLog(std::move(*file));
}

Status StepLog::Append(const StepRecord& record) { return file_.Append(ToJson(record) + "\n"); }

}  // namespace trainyard::observe
