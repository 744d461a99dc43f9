#include "trainer/dist/gloo_queue.h"

#include <utility>

#include "trainer/dist/situation.h"

namespace trainyard::dist::gloo {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

std::string Elapsed(const Task& task) {
  return Seconds(std::chrono::duration_cast<milliseconds>(Clock::now() - task.start).count());
}

class TaskWork final : public Work {
 public:
  TaskWork(std::shared_ptr<Shared> shared, std::shared_ptr<Task> task)
      : shared_(std::move(shared)), task_(std::move(task)) {}
  void Wait() override {
    std::unique_lock lock(shared_->mutex);
    shared_->changed.wait(lock, [&] { return task_->done || shared_->failed; });
    if (!task_->done) {
      shared_->Throw(task_->what);
    }
  }

 private:
  const std::shared_ptr<Shared> shared_;
  const std::shared_ptr<Task> task_;
};

class MessageWork final : public Work {
 public:
  MessageWork(std::shared_ptr<Shared> shared, Task task, std::unique_ptr<GlooMessage> message)
      : shared_(std::move(shared)), task_(std::move(task)), message_(std::move(message)) {}
  void Wait() override {
    if (task_.done) {
      return;
    }
    try {
      message_->Wait(task_.deadline());
      task_.done = true;
      if (shared_->monitor) shared_->monitor->log().End(task_.id);
    } catch (const std::exception& e) {
      FailCall(*shared_, task_, e.what());
      std::lock_guard lock(shared_->mutex);
      shared_->Throw(task_.what);
    }
  }

 private:
  const std::shared_ptr<Shared> shared_;
  Task task_;
  const std::unique_ptr<GlooMessage> message_;
};

}  // namespace

void Shared::Fail(CommError::Kind why, const std::string& message, const std::string& reason) {
  // Before the connections close: who finds them closed looks for the reason.
  if (monitor) monitor->Farewell(reason, true);
  {
    std::lock_guard lock(mutex);
    if (!failed) {
      failed = true;
      kind = why;
      failure = message;
    }
    changed.notify_all();
  }
  group->Close();
}

void Shared::WaitsFor(const Task& task, int peer) {
  if (monitor) monitor->log().WaitsFor(task.id, world_ranks[static_cast<size_t>(peer)]);
}

void Shared::Throw(const std::string& what) const {
  throw CommError(kind, failure.starts_with(what) ? failure : what + " failed: " + failure);
}

void FailCall(Shared& shared, const Task& task, const std::string& error) {
  {
    std::lock_guard lock(shared.mutex);
    if (shared.failed) return;  // the exception is the echo of our own closing
  }
  // Gloo wakes up a little early or late; what ends close to the deadline ended because of it.
  const bool late = Clock::now() + milliseconds(5) >= task.deadline();
  const auto call = shared.monitor ? shared.monitor->log().Find(task.id) : std::nullopt;
  const int peer = call ? call->waiting_for : -1;
  std::string blame;
  if (call && late) blame = shared.monitor->Verdict(task.id, std::chrono::milliseconds(300));
  if (call && !late && peer >= 0) blame = shared.monitor->WhyLost(task.id, peer);
  if (late) {
    if (blame.empty()) blame = "a peer is silent or makes another call";
    shared.Fail(CommError::Kind::kDeadline,
                task.what + " did not complete within its deadline of " + std::to_string(task.allowed.count()) +
                    " ms: " + blame,
                blame + (call ? ", seen in " + call->Text() : ""));
    return;
  }
  if (blame.empty()) {
    blame = "a peer is lost (" + error.substr(0, error.find('\n')) + "); see what the other ranks said first";
  }
  shared.Fail(CommError::Kind::kPeerLost, task.what + " failed after " + Elapsed(task) + ": " + blame, blame);
}

void RunQueue(const std::shared_ptr<Shared>& shared) {
  at::NoGradGuard no_grad;
  for (;;) {
    std::shared_ptr<Task> task;
    {
      std::unique_lock lock(shared->mutex);
      shared->changed.wait(lock, [&] { return shared->stopping || shared->failed || !shared->queue.empty(); });
      if (shared->failed || shared->queue.empty()) {
        return;
      }
      task = std::move(shared->queue.front());
      shared->queue.pop_front();
    }
    try {
      task->run();
    } catch (const std::exception& e) {
      FailCall(*shared, *task, e.what());
      return;
    }
    task->run = nullptr;  // lets go of the buffers
    if (shared->monitor) shared->monitor->log().End(task->id);
    std::lock_guard lock(shared->mutex);
    task->done = true;
    shared->changed.notify_all();
  }
}

WorkPtr MakeWork(std::shared_ptr<Shared> shared, std::shared_ptr<Task> task) {
  return std::make_unique<TaskWork>(std::move(shared), std::move(task));
}

WorkPtr MakeWork(std::shared_ptr<Shared> shared, Task task, std::unique_ptr<GlooMessage> message) {
  return std::make_unique<MessageWork>(std::move(shared), std::move(task), std::move(message));
}

}  // namespace trainyard::dist::gloo
