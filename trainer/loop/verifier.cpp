#include "trainer/loop/verifier.h"

#include <sys/resource.h>
#include <unistd.h>

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/verify.h"
#include "trainer/observe/log.h"

namespace trainyard::loop {

Verifier::Verifier(std::string root, double every_hours, checkpoint::FileSystem& fs)
    : root_(std::move(root)), every_(every_hours * 3600), fs_(fs) {
  thread_ = std::thread([this] { Run(); });
}

Verifier::~Verifier() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Verifier::Look(int64_t step) {
  std::lock_guard lock(mutex_);
  asked_ = step;
  changed_.notify_all();
}

void Verifier::Finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !asked_ && !looking_; });
}

std::optional<Verifier::Finding> Verifier::Found(int64_t step) const {
  std::lock_guard lock(mutex_);
  const auto found = found_.find(step);
  return found == found_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<int64_t> Verifier::Bad() const {
  std::lock_guard lock(mutex_);
  std::vector<int64_t> steps;
  for (const auto& [step, finding] : found_) {
    if (!finding.good) steps.push_back(step);
  }
  return steps;
}

std::string Verifier::Damage() const {
  std::lock_guard lock(mutex_);
  for (auto found = found_.rbegin(); found != found_.rend(); ++found) {
    if (!found->second.good) return "step " + std::to_string(found->first) + ": " + found->second.problem;
  }
  return "";
}

void Verifier::KeepOnly(const std::vector<checkpoint::CheckpointInfo>& there) {
  std::lock_guard lock(mutex_);
  std::erase_if(found_, [&](const auto& found) {
    return std::none_of(there.begin(), there.end(), [&](const auto& info) { return info.step == found.first; });
  });
}

void Verifier::Run() {
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 19);  // of this thread alone; training comes first
  auto next = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::nanoseconds>(every_);
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const auto wanted = [&] { return stopping_ || asked_.has_value(); };
    if (every_.count() > 0) {
      changed_.wait_until(lock, next, wanted);
    } else {
      changed_.wait(lock, wanted);
    }
    if (stopping_) return;
    // Also where every look that was asked for lasts until the next one is.
    const bool due = every_.count() > 0 && std::chrono::steady_clock::now() >= next;
    const std::optional<int64_t> step = std::exchange(asked_, std::nullopt);
    looking_ = true;
    lock.unlock();
    try {
      if (step) LookAt(*step);
      if (due) LookAtAll();
    } catch (const std::exception& exception) {  // such as too little memory for a manifest that is none
      observe::Warn(c10::str("checkpoints are not verified: ", exception.what()));
    }
    if (due) next = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::nanoseconds>(every_);
    lock.lock();
    looking_ = false;
    changed_.notify_all();
  }
}

void Verifier::LookAtAll() {
  const auto all = checkpoint::List(root_, checkpoint::Check::kStructure, fs_);
  if (!all) return observe::Warn("checkpoints are not verified: " + all.error().message);
  KeepOnly(*all);
  for (const auto& info : *all) {
    if (stopping_) return;
    LookAt(info.step);
  }
}

void Verifier::LookAt(int64_t step) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string path = root_ + "/" + checkpoint::StepDirectory(step);
  const auto report = checkpoint::Verify(path, checkpoint::Check::kEverything, fs_, &stopping_);
  if (stopping_) return;
  if (!report) {
    // Pruned meanwhile is no news. Anything else says nothing about what is on the disk.
    if (report.error().code == ErrorCode::kNotFound) return;
    return observe::Warn(c10::str("the checkpoint of step ", step, " is not verified: ", report.error().message));
  }
  // What was pruned while it was read has lost its files.
  if (!report->ok() && !fs_.Stat(path)) return;
  Finding finding{.step = step,
                  .good = report->ok(),
                  .seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()};
  if (!finding.good) {
    finding.problem = report->problems[0].ToString();
    observe::Warn(c10::str("the checkpoint of step ", step, " is damaged, found when it was read back: ",
                           finding.problem, "; it stays where it is, and resuming will pass over it"));
  }
  std::lock_guard lock(mutex_);
  found_[step] = std::move(finding);
}

}  // namespace trainyard::loop
