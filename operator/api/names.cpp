#include "operator/api/names.h"

#include <algorithm>
#include <cctype>

#include "operator/base/ids.h"

namespace trainyard::api {
namespace {

std::string Lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

// Optimal string alignment: insertions, deletions, substitutions and swaps of neighbours, each once.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

Result<Strategy> ParseStrategy(std::string_view text) {
  for (const auto& [value, name] : EnumNames<Strategy>::kAll) {
    if (Lower(name) == Lower(text)) return value;
  }
  return Fail(ErrorCode::kInvalidArgument,
              "'" + std::string(text) + "' is not a strategy: " + Suggest(text, AllNames<Strategy>()));
}

std::string PodName(std::string_view job_name, std::string_view job_uid, int64_t attempt, int64_t node_rank) {
  return std::string(job_name) + "-" + ShortUid(job_uid) + "-" + std::to_string(attempt) + "-" +
         std::to_string(node_rank);
}

std::string PodName(const TrainingJob& job, int64_t attempt, int64_t node_rank) {
  return PodName(job.meta.name, job.meta.uid, attempt, node_rank);
}

std::string ServiceName(std::string_view job_name) { return "tj-" + std::string(job_name); }

std::string ServiceName(const TrainingJob& job) { return ServiceName(job.meta.name); }

bool IsDnsLabel(std::string_view text, size_t max_length) {
  if (text.empty() || text.size() > max_length || text.front() == '-' || text.back() == '-') return false;
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
}

bool IsDnsSubdomain(std::string_view text) {
  if (text.size() > 253) return false;
  while (true) {
    size_t dot = text.find('.');
    if (!IsDnsLabel(text.substr(0, dot), 253)) return false;
    if (dot == std::string_view::npos) return true;
    text.remove_prefix(dot + 1);
  }
}

bool IsLabelValue(std::string_view text) {
  auto alnum = [](unsigned char c) { return std::isalnum(c) != 0; };
  if (text.empty()) return true;
  return text.size() <= 63 && alnum(text.front()) && alnum(text.back()) &&
         std::all_of(text.begin(), text.end(),
                     [&](unsigned char c) { return alnum(c) || c == '.' || c == '_' || c == '-'; });
}

bool IsQualifiedName(std::string_view text) {
  const size_t slash = text.find('/');
  const std::string_view name = slash == std::string_view::npos ? text : text.substr(slash + 1);
  if (slash != std::string_view::npos && !IsDnsSubdomain(text.substr(0, slash))) return false;
  return !name.empty() && IsLabelValue(name);
}

std::optional<std::string> NearestName(std::string_view word, const std::vector<std::string_view>& candidates) {
  // Distance grows with the product of the lengths: nobody means a name of ours by a very long word.
  if (word.empty() || word.size() > 64) return std::nullopt;
  std::optional<std::string> best;
  size_t best_distance = std::max<size_t>(1, word.size() / 3) + 1;
  for (std::string_view candidate : candidates) {
    if (candidate.empty() || candidate.size() > 64) continue;
    size_t distance = EditDistance(Lower(word), Lower(candidate));
    if (distance < best_distance) {
      best_distance = distance;
      best = std::string(candidate);
    }
  }
  return best;
}

std::string Suggest(std::string_view word, const std::vector<std::string_view>& candidates) {
  if (auto nearest = NearestName(word, candidates)) return "did you mean '" + Printable(*nearest) + "'?";
  std::string list;
  for (std::string_view candidate : candidates) list += (list.empty() ? "" : ", ") + Printable(candidate);
  return "known are " + list;
}

std::string Printable(std::string_view text) {
  constexpr size_t kMax = 48;
  size_t end = std::min(text.size(), kMax);
  // Not in the middle of a character of UTF-8.
  while (end > 0 && end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  std::string out;
  for (char c : text.substr(0, end)) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  if (text.size() > end) out += "...";
  return out;
}

}  // namespace trainyard::api
