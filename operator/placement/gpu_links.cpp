#include "operator/placement/gpu_links.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "operator/api/names.h"

namespace trainyard::placement {
namespace {

constexpr int64_t kMostGpus = 256;

tl::unexpected<Error> Bad(std::string_view text, const std::string& what) {
  return Fail(ErrorCode::kInvalidArgument, "'" + api::Printable(text) + "' are no islands of GPUs: " + what);
}

std::optional<int64_t> Index(std::string_view text) {
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || value < 0 || value >= kMostGpus) return std::nullopt;
  return value;
}

// Calls `take` for each part of `text` between separators.
template <typename Take>
bool Split(std::string_view text, char separator, Take take) {
  while (true) {
    const size_t end = text.find(separator);
    if (!take(text.substr(0, end))) return false;
    if (end == std::string_view::npos) return true;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

std::string LinksNote(const api::NodeSnapshot& node) {
  const auto annotation = node.annotations.find(kGpuLinksAnnotation);
  return annotation == node.annotations.end() ? "" : annotation->second;
}

std::string IslandsText(const Islands& islands) {
  std::string text;
  for (const std::vector<int64_t>& island : islands) {
    if (!text.empty()) text += '/';
    for (size_t i = 0; i < island.size();) {
      size_t last = i;
      while (last + 1 < island.size() && island[last + 1] == island[last] + 1) ++last;
      if (i > 0) text += '+';
      text += std::to_string(island[i]);
      if (last > i) text += "-" + std::to_string(island[last]);
      i = last + 1;
    }
  }
  return text;
}

Result<Islands> ParseIslands(std::string_view text) {
  if (text.size() > 2000) return Bad(text, "too long");
  Islands islands;
  std::vector<bool> seen;
  std::string problem;
  const auto take_range = [&](std::string_view range) {
    const size_t dash = range.find('-');
    const auto first = Index(range.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : Index(range.substr(dash + 1));
    if (!first || !last || *last < *first) {
      problem = "'" + api::Printable(range) + "' is neither a GPU nor a range such as 0-3";
      return false;
    }
    for (int64_t gpu = *first; gpu <= *last; ++gpu) {
      const auto index = static_cast<size_t>(gpu);
      if (seen.size() <= index) seen.resize(index + 1);
      if (seen[index]) {
        problem = "GPU " + std::to_string(gpu) + " is there twice";
        return false;
      }
      seen[index] = true;
      islands.back().push_back(gpu);
    }
    return true;
  };
  const bool good = Split(text, '/', [&](std::string_view island) {
    islands.emplace_back();
    return Split(island, '+', take_range);
  });
  if (!good) return Bad(text, problem);
  if (const auto gap = std::find(seen.begin(), seen.end(), false); gap != seen.end()) {
    return Bad(text, "GPU " + std::to_string(gap - seen.begin()) + " is missing");
  }
  for (std::vector<int64_t>& island : islands) std::sort(island.begin(), island.end());
  return islands;
}

}  // namespace trainyard::placement
