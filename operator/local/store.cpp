#include "operator/local/store.h"

#include <algorithm>

#include "operator/local/object_rules.h"

namespace trainyard::local {

using cluster::Kind;
using cluster::Object;
using cluster::ObjectKey;
using cluster::WatchEvent;
using nlohmann::json;

namespace {

std::string Describe(Kind kind, const ObjectKey& key) {
  return std::string(cluster::InfoOf(kind).kind) + " \"" + cluster::ToString(key) + "\"";
}

std::vector<std::string> OwnerUids(const Object& object) {
  std::vector<std::string> uids;
  if (!object) return uids;
  for (const json& owner : object->at("metadata").value("ownerReferences", json::array())) {
    uids.push_back(owner["uid"].get<std::string>());
  }
  return uids;
}

bool HasFinalizers(const json& object) { return !object.at("metadata").value("finalizers", json::array()).empty(); }

bool IsDeleting(const json& object) { return object.at("metadata").contains("deletionTimestamp"); }

int64_t GraceOf(const json& object) { return object.at("metadata").value("deletionGracePeriodSeconds", int64_t{0}); }

// Pods of which a kubelet must say when they are over.
bool NeedsKubelet(Kind kind, const json& object) {
  if (kind != Kind::kPod) return false;
  const std::string phase = TextAt(object, "/status/phase"_json_pointer);
  const bool bound = !TextAt(object, "/spec/nodeName"_json_pointer).empty();
  return bound && phase != "Succeeded" && phase != "Failed";
}

}  // namespace

class Store::Transaction {
 public:
  explicit Transaction(Store& store) : store_(store), lock_(store.mutex_), before_(store.version_) {}
  ~Transaction() {
    const bool changed = store_.version_ != before_;
    lock_.unlock();
    if (!changed) return;
    store_.changed_.notify_all();
    store_.on_change_();
  }

 private:
  Store& store_;
  std::unique_lock<std::mutex> lock_;
  const Version before_;
};

Store::Store(const Clock& clock, size_t watch_window, std::function<void()> on_change)
    : clock_(clock), window_(std::max<size_t>(1, watch_window)), on_change_(std::move(on_change)) {}

Result<Object> Store::FindLocked(Kind kind, const ObjectKey& key) const {
  const auto& objects = shelf(kind).objects;
  const auto found = objects.find(key);
  if (found == objects.end()) return Fail(ErrorCode::kNotFound, Describe(kind, key) + " not found");
  return found->second;
}

Object Store::CommitLocked(Kind kind, const ObjectKey& key, Object before, std::optional<json> next) {
  Shelf& shelf = this->shelf(kind);
  ++version_;
  Object now;
  Change change{version_, WatchEvent::Type::kModified, nullptr, before};
  if (next) {
    (*next)["metadata"]["resourceVersion"] = std::to_string(version_);
    now = std::make_shared<const json>(*std::move(next));
    if (!before) change.type = WatchEvent::Type::kAdded;
    change.now = now;
    shelf.objects[key] = now;
  } else {
    json last = *before;
    last["metadata"]["resourceVersion"] = std::to_string(version_);
    change.type = WatchEvent::Type::kDeleted;
    change.now = std::make_shared<const json>(std::move(last));
    shelf.objects.erase(key);
  }
  const Ref ref{kind, key};
  if (!now) by_uid_.erase(cluster::UidOf(*before));
  if (!before) by_uid_[cluster::UidOf(*now)] = ref;
  for (const std::string& uid : OwnerUids(before)) {
    if (auto found = dependents_.find(uid); found != dependents_.end()) {
      found->second.erase(ref);
      if (found->second.empty()) dependents_.erase(found);
    }
  }
  for (const std::string& uid : OwnerUids(now)) dependents_[uid].insert(ref);
  shelf.history.push_back(std::move(change));
  if (shelf.history.size() > window_) {
    shelf.expired = shelf.history.front().version;
    shelf.history.pop_front();
  }
  return now;
}

Object Store::UpdateLocked(Kind kind, const ObjectKey& key, Object before, json next) {
  if (next == *before) return before;
  if (IsDeleting(next) && !HasFinalizers(next) && GraceOf(next) == 0) {
    Object last = CommitLocked(kind, key, before, std::move(next));
    RemoveLocked(kind, key);
    return last;
  }
  return CommitLocked(kind, key, before, std::move(next));
}

Result<cluster::ObjectList> Store::List(Kind kind, const cluster::ListOptions& options) const {
  const auto selector = cluster::Selector::Parse(options.label_selector);
  if (!selector) return Fail(selector.error());
  std::lock_guard lock(mutex_);
  cluster::ObjectList list;
  for (const auto& [key, object] : shelf(kind).objects) {
    if (!options.ns.empty() && key.ns != options.ns) continue;
    if (selector->Matches(*object)) list.items.push_back(object);
  }
  list.resource_version = std::to_string(version_);
  return list;
}

Result<json> Store::Get(Kind kind, const ObjectKey& key) const {
  std::lock_guard lock(mutex_);
  Result<Object> found = FindLocked(kind, key);
  if (!found) return Fail(found.error());
  return **found;
}

Result<json> Store::Create(Kind kind, json object) {
  if (Status status = PrepareCreate(kind, clock_.Now(), object); !status) return Fail(status.error());
  const ObjectKey key = cluster::KeyOf(object);
  Transaction transaction(*this);
  if (shelf(kind).objects.contains(key)) {
    return Fail(ErrorCode::kAlreadyExists, Describe(kind, key) + " already exists");
  }
  const Object stored = CommitLocked(kind, key, nullptr, std::move(object));
  CollectLocked({kind, key});
  return *stored;
}

Result<json> Store::Replace(Kind kind, json object) {
  const ObjectKey key = cluster::KeyOf(object);
  Transaction transaction(*this);
  Result<Object> old = FindLocked(kind, key);
  if (!old) return Fail(old.error());
  if (Status status = PrepareReplace(kind, **old, object); !status) return Fail(status.error());
  return *UpdateLocked(kind, key, *old, std::move(object));
}

Result<json> Store::ReplaceStatus(Kind kind, json object) {
  const ObjectKey key = cluster::KeyOf(object);
  Transaction transaction(*this);
  Result<Object> old = FindLocked(kind, key);
  if (!old) return Fail(old.error());
  if (Status status = PrepareStatus(kind, **old, object); !status) return Fail(status.error());
  return *UpdateLocked(kind, key, *old, std::move(object));
}

Result<json> Store::Patch(Kind kind, const ObjectKey& key, cluster::PatchType type, const json& patch, bool status) {
  Transaction transaction(*this);
  Result<Object> old = FindLocked(kind, key);
  if (!old) return Fail(old.error());
  Result<json> next = ApplyPatch(type, patch, **old);
  if (!next) return Fail(next.error().Wrap(Describe(kind, key)));
  const Status prepared = status ? PrepareStatus(kind, **old, *next) : PrepareReplace(kind, **old, *next);
  if (!prepared) return Fail(prepared.error());
  return *UpdateLocked(kind, key, *old, *std::move(next));
}

Status Store::Edit(Kind kind, const ObjectKey& key, const std::string& uid, const std::function<void(json&)>& edit) {
  Transaction transaction(*this);
  Result<Object> old = FindLocked(kind, key);
  if (!old) return Fail(old.error());
  if (!uid.empty() && cluster::UidOf(**old) != uid) {
    return Fail(ErrorCode::kConflict, Describe(kind, key) + " is another object by now");
  }
  json next = **old;
  edit(next);
  UpdateLocked(kind, key, *old, std::move(next));
  return {};
}

Status Store::Delete(Kind kind, const ObjectKey& key, const cluster::DeleteOptions& options) {
  Transaction transaction(*this);
  return DeleteLocked(kind, key, options);
}

Status Store::DeleteCollection(Kind kind, const cluster::ListOptions& options, std::optional<int64_t> grace_seconds) {
  Result<cluster::ObjectList> list = List(kind, options);
  if (!list) return Fail(list.error());
  for (const Object& object : list->items) {
    const Status status = Delete(kind, cluster::KeyOf(*object), {cluster::UidOf(*object), "", grace_seconds});
    const bool gone =
        !status && (status.error().code == ErrorCode::kNotFound || status.error().code == ErrorCode::kConflict);
    if (!status && !gone) return status;
  }
  return {};
}

Status Store::DeleteLocked(Kind kind, const ObjectKey& key, const cluster::DeleteOptions& options) {
  Result<Object> old = FindLocked(kind, key);
  if (!old) return Fail(old.error());
  const json& object = **old;
  if ((!options.uid.empty() && options.uid != cluster::UidOf(object)) ||
      (!options.resource_version.empty() && options.resource_version != cluster::ResourceVersionOf(object))) {
    return Fail(ErrorCode::kConflict, Describe(kind, key) + ": the precondition of the deletion does not hold");
  }
  if (options.grace_seconds && *options.grace_seconds < 0) {
    return Fail(ErrorCode::kInvalidArgument, Describe(kind, key) + ": graceSeconds must not be negative");
  }
  int64_t grace = 0;
  if (NeedsKubelet(kind, object)) {
    const json own = object.value("/spec/terminationGracePeriodSeconds"_json_pointer, json());
    grace = options.grace_seconds.value_or(own.is_number_integer() ? own.get<int64_t>() : 30);
  }
  if (IsDeleting(object)) {
    // A later deletion can only shorten the grace period.
    if (grace >= GraceOf(object) && !(grace == 0 && !HasFinalizers(object))) return {};
  }
  const bool at_once = grace == 0 && !HasFinalizers(object);
  if (at_once && kind != Kind::kPod) {
    RemoveLocked(kind, key);
    return {};
  }
  json next = object;
  json& metadata = next["metadata"];
  metadata["deletionTimestamp"] = FormatTime(clock_.Now() + std::chrono::seconds(grace));
  metadata["deletionGracePeriodSeconds"] = grace;
  if (metadata.contains("generation") && !IsDeleting(object)) {
    metadata["generation"] = metadata["generation"].get<int64_t>() + 1;
  }
  CommitLocked(kind, key, *old, std::move(next));
  // As an API server does it: even a pod that goes at once is seen to be marked before it is gone.
  if (at_once) RemoveLocked(kind, key);
  return {};
}

void Store::RemoveLocked(Kind kind, const ObjectKey& key) {
  const Object last = shelf(kind).objects.at(key);
  CommitLocked(kind, key, last, std::nullopt);
  const auto found = dependents_.find(cluster::UidOf(*last));
  if (found == dependents_.end()) return;
  for (const Ref& ref : std::set<Ref>(found->second)) CollectLocked(ref);
}

void Store::CollectLocked(const Ref& ref) {
  const Result<Object> object = FindLocked(ref.first, ref.second);
  if (!object) return;
  const json owners = (*object)->at("metadata").value("ownerReferences", json::array());
  // Owners of kinds that this store does not hold are taken to exist.
  const bool orphan = !owners.empty() && std::all_of(owners.begin(), owners.end(), [this](const json& owner) {
    const bool ours = std::any_of(std::begin(cluster::kAllKinds), std::end(cluster::kAllKinds), [&](Kind kind) {
      return cluster::InfoOf(kind).kind == owner["kind"].get_ref<const std::string&>();
    });
    return ours && !by_uid_.contains(owner["uid"].get<std::string>());
  });
  if (orphan) DeleteLocked(ref.first, ref.second, {cluster::UidOf(**object), "", std::nullopt});
}

void Store::Close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

}  // namespace trainyard::local
