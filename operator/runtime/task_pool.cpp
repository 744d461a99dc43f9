#include "operator/runtime/task_pool.h"

#include <algorithm>

namespace trainyard::runtime {

TaskPool::TaskPool(int threads) {
  for (int i = 0; i < std::max(threads, 1); ++i) threads_.emplace_back([this] { Run(); });
}

TaskPool::~TaskPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    work_came_.notify_all();
  }
  threads_.clear();
}

void TaskPool::ForEach(size_t count, const std::function<bool(size_t)>& work) {
  if (count == 0) return;
  if (count == 1) {
    work(0);
    return;
  }
  Batch batch{&work, count};
  std::unique_lock lock(mutex_);
  batches_.push_back(&batch);
  work_came_.notify_all();
  batch_ended_.wait(lock, [&] { return batch.Ended(); });
}

void TaskPool::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    work_came_.wait(lock, [this] { return stop_ || !batches_.empty(); });
    if (batches_.empty()) return;
    Batch* batch = batches_.front();
    batches_.pop_front();
    const size_t index = batch->next++;
    ++batch->running;
    if (batch->next < batch->count) batches_.push_back(batch);  // behind the others: they take turns
    lock.unlock();
    const bool go_on = (*batch->work)(index);
    lock.lock();
    if (!go_on && batch->next < batch->count) {
      batch->next = batch->count;
      std::erase(batches_, batch);
    }
    --batch->running;
    if (batch->Ended()) batch_ended_.notify_all();
  }
}

}  // namespace trainyard::runtime
