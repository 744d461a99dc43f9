#include "operator/cli/resize_verdict.h"

#include <cstdio>
#include <utility>

namespace trainyard::cli {
namespace {

std::string Seconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", seconds);
  return text;
}

}  // namespace

std::optional<ResizeVerdict> VerdictOf(const api::JobStatus& status) {
  if (!status.resize || status.resize->attempt != status.attempt) {
    return ResizeVerdict{false, "nothing to verify: the attempt that runs did not begin with a resize"};
  }
  const api::ResizeStatus& resize = *status.resize;
  if (resize.loaded_hash.empty()) {
    const bool told = status.progress && status.progress->resumed_from_step == 0;
    if (told) return ResizeVerdict{false, "not verified: it began at step 0, with nothing to load"};
    return std::nullopt;
  }
  if (resize.saved_hash.empty()) {
    return ResizeVerdict{false,
                         "not verified: no operator heard with which state the ranks ended; if they were killed before "
                         "they had saved it, what came after the checkpoint that was loaded is lost"};
  }
  if (resize.saved_hash != resize.loaded_hash) {
    return ResizeVerdict{false, "NOT the same state: the ranks held " + resize.saved_hash + " when they stopped and " +
                                    resize.loaded_hash + " when they had loaded it"};
  }
  return ResizeVerdict{true, "verified: parameters and optimizer state in memory are the same, " + resize.saved_hash};
}

std::string ResizeTimes(const api::ResizeStatus& resize) {
  const api::ResizeSeconds& s = resize.seconds;
  double sum = 0;
  std::string parts;
  for (const auto& [name, seconds] :
       {std::pair{"place", s.place}, std::pair{"drain", s.drain}, std::pair{"save", s.save},
        std::pair{"start", s.start}, std::pair{"load", s.load}, std::pair{"first step", s.first_step}}) {
    if (!seconds) continue;
    sum += *seconds;
    parts += std::string(parts.empty() ? "" : ", ") + name + " " + Seconds(*seconds);
  }
  return "from " + std::to_string(resize.from) + " to " + std::to_string(resize.to) + " GPUs in " + Seconds(sum) +
         (parts.empty() ? "" : ": " + parts);
}

}  // namespace trainyard::cli
