// Jobs as we just wrote them, for as long as the cache still shows older versions: the next decision must see the claim
// that the last one made. Resource versions are opaque, so what is older is known by remembering the chain of versions
// that each write stood on; whatever the cache brings outside that chain is newer, since the server refuses a write
// that does not stand on the latest version. The cache may bring a write before its answer arrives, hence Begin().
// Thread-safety: all members from any thread; one write per job at a time.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "operator/controller/job_record.h"

namespace trainyard::controller {

class JobOverlay {
 public:
  // A write that stands on `base_version` is about to be sent. Put() or Drop() must follow.
  void Begin(const cluster::ObjectKey& key, const std::string& base_version);
  // The write was accepted, and this is what the server stored.
  void Put(JobPtr written);
  // The write was refused. What earlier writes stored stays known until the cache has it, or something newer.
  void Drop(const cluster::ObjectKey& key);
  // The cache has brought this version; null: the job is gone. To be called for every change, after the cache has it.
  void Observe(const cluster::ObjectKey& key, const JobPtr& cached);
  // The written job if the cache does not have it yet, else `cached`.
  JobPtr Latest(const cluster::ObjectKey& key, const JobPtr& cached) const;

 private:
  struct Entry {
    std::vector<std::string> chain;  // versions that writes stood on, oldest first
    JobPtr written;                  // null while the first write is under way
    bool overtaken = false;          // the cache has brought something newer than the chain
  };
  mutable std::mutex mutex_;  // guards entries_
  std::map<cluster::ObjectKey, Entry> entries_;
};

}  // namespace trainyard::controller
