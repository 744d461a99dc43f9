// status.resize: what a change of the number of GPUs was for, and where its time went, as far as the operator sees it.
// Each time is set once, from what is known when the phase is over.
#include <algorithm>
#include <chrono>

#include "operator/lifecycle/rounding.h"
#include "operator/lifecycle/steps.h"

namespace trainyard::lifecycle {
namespace {

double Seconds(TimePoint from, TimePoint to) {
  const std::chrono::duration<double> seconds = std::max(Milliseconds(0), to - from);
  return Round(seconds.count(), 3).value_or(0);
}

// Wanted, and not at the new size yet.
bool UnderWay(const Context& c) { return c.s.resize && c.s.resize->attempt == 0; }

// The save by which the attempt has ended, where its last words told of it: it is of the step at which it stopped.
std::optional<double> LastSave(const Context& c) {
  const auto& saved = c.s.checkpoint;
  if (!saved || !c.s.progress || saved->step == 0 || saved->step != c.s.progress->step) return std::nullopt;
  return saved->write_seconds ? saved->write_seconds : Round(saved->seconds, 3);
}

}  // namespace

void WantSize(Context& c, int64_t gpus, const std::string& why) {
  const int64_t from = TotalGpus(*c.s.placement);
  if (UnderWay(c) && c.s.resize->from == from && !c.s.resize->stopped_at) {
    c.s.resize->to = gpus;
    c.s.resize->why = why;
    return;
  }
  c.s.resize = api::ResizeStatus{.from = from, .to = gpus, .why = why, .wanted_at = c.in.now};
}

void WantNoSize(Context& c) {
  if (UnderWay(c) && !c.s.resize->stopped_at) c.s.resize.reset();
}

void StopsForSize(Context& c) {
  api::ResizeStatus& resize = *c.s.resize;
  resize.stopped_at = c.in.now;
  resize.seconds.place = Seconds(*resize.wanted_at, c.in.now);
}

void LostSize(Context& c, const std::string& why) {
  if (c.job.spec.gpus.min_count <= 0) return;  // it comes back at the size that it had
  // One that was being resized anyway goes on with that.
  if (!UnderWay(c)) {
    const int64_t from = TotalGpus(*c.s.placement);
    c.s.resize = api::ResizeStatus{.from = from, .why = why, .wanted_at = c.in.now};
  }
  c.s.resize->stopped_at = c.in.now;
}

void SizeIsGone(Context& c) {
  if (!UnderWay(c) || !c.s.resize->stopped_at || c.s.resize->gone_at) return;
  api::ResizeStatus& resize = *c.s.resize;
  resize.gone_at = c.in.now;
  if (c.s.progress) resize.saved_hash = c.s.progress->state_hash;
  resize.seconds.save = LastSave(c);
  const double whole = Seconds(*resize.stopped_at, c.in.now);
  resize.seconds.drain = Round(std::max(0.0, whole - resize.seconds.save.value_or(0)), 3);
}

void ClaimsSize(Context& c) {
  if (!c.s.resize || c.s.resize->loaded_at) return;  // one that did not come up is claimed again
  const int64_t to = TotalGpus(*c.s.placement);
  if (to == c.s.resize->from) return c.s.resize.reset();  // another attempt at the old size
  api::ResizeStatus& resize = *c.s.resize;
  resize.to = to;
  resize.attempt = c.s.attempt;
  if (!resize.seconds.place) resize.seconds.place = Seconds(*resize.wanted_at, c.in.now);
}

void WatchSize(Context& c) {
  if (!c.s.resize || c.s.resize->attempt != c.s.attempt || c.s.resize->attempt == 0) return;
  api::ResizeStatus& resize = *c.s.resize;
  const bool live = c.in.progress && c.in.progress_attempt == c.s.attempt && c.in.progress->resumed_from_step;
  if (!live || resize.seconds.first_step) return;
  const api::Progress& now = *c.in.progress;
  if (!resize.loaded_at) {
    resize.loaded_at = c.in.now;
    resize.seconds.load = Round(now.load_seconds, 3);
    resize.bytes_read_per_rank = now.load_bytes;
    // What a look finds done already was done before it.
    const double whole = Seconds(resize.gone_at.value_or(*resize.wanted_at), c.in.now);
    const double done = resize.seconds.load.value_or(0) + now.first_step_seconds.value_or(0);
    resize.seconds.start = Round(std::max(0.0, whole - done), 3);
  }
  if (resize.loaded_hash.empty()) resize.loaded_hash = now.loaded_state_hash;
  if (now.step > *now.resumed_from_step) {
    resize.seconds.first_step = now.first_step_seconds ? Round(now.first_step_seconds, 3)  //
                                                       : Seconds(*resize.loaded_at, c.in.now);
  } else {
    c.Requeue(Milliseconds(1'000));
  }
}

}  // namespace trainyard::lifecycle
