#include "operator/cli/job_table.h"

#include <cstdio>

#include "operator/api/names.h"
#include "operator/cli/columns.h"

namespace trainyard::cli {
namespace {

std::string Printf(const char* format, double value) {
  char text[48];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

std::string Age(const api::TrainingJob& job, TimePoint now) {
  if (!job.meta.creation_time) return "-";
  return FormatDuration(std::chrono::floor<std::chrono::seconds>(now - *job.meta.creation_time));
}

std::vector<std::string> Row(const api::TrainingJob& job, bool wide, TimePoint now) {
  const api::JobStatus& s = job.status;
  std::vector<std::string> row = {job.meta.name, std::string(api::ToString(s.phase)), std::to_string(s.gpus)};
  row.push_back(s.plan && !s.plan->product.empty() ? s.plan->product : "-");
  row.push_back(s.progress ? std::to_string(s.progress->step) : "-");
  row.push_back(s.progress && s.progress->loss ? FormatLoss(*s.progress->loss) : "-");
  row.push_back(s.progress && s.progress->tokens_per_second ? FormatRate(*s.progress->tokens_per_second) : "-");
  row.push_back(s.checkpoint && s.checkpoint->step > 0 ? std::to_string(s.checkpoint->step) : "-");
  row.push_back(Age(job, now));
  if (wide) {
    row.push_back(s.plan ? s.plan->strategy : "-");
    row.push_back(s.reason.empty() ? "-" : s.reason);
  }
  return row;
}

}  // namespace

std::string FormatLoss(double loss) { return Printf("%.4g", loss); }

std::string FormatRate(double rate) {
  if (rate >= 1e6) return Printf("%.2fM", rate / 1e6);
  if (rate >= 1e3) return Printf("%.1fk", rate / 1e3);
  return Printf("%.0f", rate);
}

std::string JobTable(const std::vector<api::TrainingJob>& jobs, bool wide, TimePoint now) {
  std::vector<std::vector<std::string>> rows = {
      {"NAME", "PHASE", "GPUS", "PRODUCT", "STEP", "LOSS", "TOKENS/S", "CHECKPOINT", "AGE"}};
  if (wide) rows[0].insert(rows[0].end(), {"STRATEGY", "REASON"});
  for (const api::TrainingJob& job : jobs) rows.push_back(Row(job, wide, now));
  return Columns(rows);
}

}  // namespace trainyard::cli
