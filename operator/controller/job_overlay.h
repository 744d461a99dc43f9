// Jobs as we just wrote them, for as long as the cache still shows older versions: the next decision must see the claim
// that the last one made. Resource versions are opaque, so what is older is known by remembering the chain of versions
// that each write stood on; whatever the cache brings outside that chain is newer, since the server refuses a write
// that does not stand on the latest version. Thread-safety: all members from any thread.
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "operator/controller/job_record.h"

namespace trainyard::controller {

class JobOverlay {
 public:
  // `written` is what the server stored when it accepted a write that stood on `base_version`.
  void Put(const std::string& base_version, JobPtr written);
  // The cache has brought this version; null: the job is gone. To be called for every change.
  void Observe(const cluster::ObjectKey& key, const JobPtr& cached);
  // What was written is not the latest any more (a write met a conflict).
  void Drop(const cluster::ObjectKey& key);
  // The written job if there is one, else `cached`.
  JobPtr Latest(const cluster::ObjectKey& key, const JobPtr& cached) const;

 private:
  struct Entry {
    std::vector<std::string> chain;  // versions up to the written one, oldest first
    JobPtr written;
  };
  mutable std::mutex mutex_;  // guards entries_
  std::map<cluster::ObjectKey, Entry> entries_;
};

}  // namespace trainyard::controller
