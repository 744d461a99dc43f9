// Why a gang waits, in words for its owner.
#include <chrono>

#include "operator/placement/line.h"

namespace trainyard::placement {
namespace {

std::string Gpus(int64_t count) { return std::to_string(count) + (count == 1 ? " GPU" : " GPUs"); }

// Coarse, so that a text with it stays as it is for a while.
std::string About(Milliseconds left) {
  using namespace std::chrono_literals;
  const auto minutes = std::chrono::duration_cast<std::chrono::minutes>(left);
  if (minutes < 10min) return "a few minutes";
  if (minutes < 60min) return "less than 1 h";
  const int64_t hours = std::chrono::round<std::chrono::hours>(minutes).count();
  if (hours < 48) return "about " + std::to_string(hours) + " h";
  return "about " + std::to_string((hours + 12) / 24) + " days";
}

// "default/a (8 GPUs, about 3 h left)"
std::string Describe(const Line::Holder& holder, TimePoint now) {
  std::string text = holder.name + " (" + Gpus(holder.gpus);
  if (holder.stopping) {
    text += holder.expected_end && *holder.expected_end <= now ? ", does not stop in time" : ", stopping";
  } else if (holder.expected_end && *holder.expected_end > now) {
    text += ", " + About(*holder.expected_end - now) + " left";
  }
  return text + ")";
}

std::string Names(const Line& line, const std::vector<std::string>& uids, TimePoint now) {
  constexpr size_t kNamed = 4;
  std::string text;
  for (size_t i = 0; i < uids.size() && i < kNamed; ++i) {
    const auto holder = line.holders.find(uids[i]);
    if (holder != line.holders.end()) text += (text.empty() ? "" : ", ") + Describe(holder->second, now);
  }
  if (uids.size() > kNamed) text += ", " + std::to_string(uids.size() - kNamed) + " more";
  return text;
}

}  // namespace

std::string WhyWaits(const Line& line, const LineEntry& entry, TimePoint now) {
  if (entry.fits) return "";
  if (entry.never) {
    std::string text = kNeverFits;
    if (entry.foreign_gpus > 0) text += "; " + Gpus(entry.foreign_gpus) + " held by pods of no TrainingJob";
    return text;
  }
  if (!entry.victims.empty()) return "to be stopped for it: " + Names(line, entry.victims, now);
  if (entry.making_room && !entry.lost_since && !entry.leaving.empty())
    return "making room: " + Names(line, entry.leaving, now);
  std::string text;
  const auto add = [&text](const std::string& more) { text += (text.empty() ? "" : "; ") + more; };
  if (entry.ahead > 0) {
    const LineEntry& first = line.entries[entry.ahead - 1];
    add("behind " + first.name + " (" + Gpus(first.gpus) + ", priority " + std::to_string(first.priority) + ")");
  }
  if (!entry.holders.empty()) {
    std::string held = "held by " + Names(line, entry.holders, now);
    if (entry.more_holders > 0) held += ", " + std::to_string(entry.more_holders) + " more";
    add(held);
  }
  if (!entry.leaving.empty()) add("being stopped: " + Names(line, entry.leaving, now));
  if (entry.lost_since) add("a node that it counts on is not there now, and the others are kept for it for a while");
  if (entry.foreign_gpus > 0) add(Gpus(entry.foreign_gpus) + " held by pods of no TrainingJob");
  if (entry.expected_start && *entry.expected_start > now) {
    add("expected to start in " + About(*entry.expected_start - now));
  }
  return text;
}

}  // namespace trainyard::placement
