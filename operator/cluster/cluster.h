// The interface to a cluster: list, watch, create, replace, patch and delete of Kubernetes objects with the API
// server's own semantics. Implemented in memory by local/ and over the Kubernetes API by kube/; one conformance suite
// (tests/operator/cluster/conformance.h) holds both to the same behaviour. Objects are Kubernetes JSON.
// Thread-safety: a Cluster may be used from any thread; a Watch by one reader, with Stop() from any thread.
#pragma once

#include <compare>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/base/clock.h"
#include "operator/base/error.h"

namespace trainyard::cluster {

enum class Kind { kTrainingJob, kPod, kService, kNode, kEvent, kLease, kPriorityClass };
inline constexpr Kind kAllKinds[] = {Kind::kTrainingJob, Kind::kPod,   Kind::kService,      Kind::kNode,
                                     Kind::kEvent,       Kind::kLease, Kind::kPriorityClass};

struct KindInfo {
  std::string_view kind;         // "Pod"
  std::string_view api_version;  // "v1"
  std::string_view plural;       // "pods"
  bool namespaced;
};
const KindInfo& InfoOf(Kind kind);

struct ObjectKey {
  std::string ns;  // empty for nodes and priority classes
  std::string name;
  auto operator<=>(const ObjectKey&) const = default;
};
// "namespace/name", or "name" without a namespace; and back (never fails: text without '/' is a name).
std::string ToString(const ObjectKey& key);
ObjectKey ParseKey(std::string_view text);

// ---- reading metadata out of any JSON; a missing or ill-typed field reads as empty ---------------------------------
ObjectKey KeyOf(const nlohmann::json& object);
std::string UidOf(const nlohmann::json& object);
std::string ResourceVersionOf(const nlohmann::json& object);
// UID of the owner reference with controller: true.
std::string ControllerUidOf(const nlohmann::json& object);
std::string LabelOf(const nlohmann::json& object, std::string_view label);

// ---- calls
// -----------------------------------------------------------------------------------------------------------

// Immutable and shared: many caches may hold the same object.
using Object = std::shared_ptr<const nlohmann::json>;

struct ListOptions {
  std::string ns;              // empty: all namespaces
  std::string label_selector;  // Kubernetes syntax, see selector.h
  // Objects per page; 0: all in one answer. As with the API itself, a cluster may ignore it and return everything.
  int limit = 0;
  std::string from;  // `next` of the page before; empty: the first page
};

struct ObjectList {
  std::vector<Object> items;
  std::string resource_version;  // watch from here to miss nothing
  std::string next;              // there are more: ask with it. Empty: this was the last page
};

struct WatchOptions {
  std::string ns;
  std::string label_selector;
  std::string from_version;  // opaque; of a list or an event. Empty: from now on
};

struct WatchEvent {
  enum class Type { kAdded, kModified, kDeleted, kBookmark };
  Type type = Type::kAdded;
  Object object;  // for kDeleted the last state; for kBookmark only metadata.resourceVersion
};

struct DeleteOptions {
  std::string uid;                       // precondition; empty: none
  std::string resource_version;          // precondition; empty: none
  std::optional<int64_t> grace_seconds;  // pods; absent: spec.terminationGracePeriodSeconds. 0 kills at once
};

enum class PatchType {
  kMerge,  // RFC 7386
  kJson    // RFC 6902; a failed "test" is kConflict
};

// A stream of changes in the order of their resource versions.
class Watch {
 public:
  virtual ~Watch() = default;
  // Waits up to `timeout` for one event; nothing came: nullopt. Errors: kGone when the version has expired (list
  // again); others mean to watch again from the last version seen: kUnavailable when the stream has ended, broke or was
  // stopped, kDeadlineExceeded when it seems dead, anything else when the server reports an error.
  virtual Result<std::optional<WatchEvent>> Next(Milliseconds timeout) = 0;
  // Wakes a waiting Next(), from any thread.
  virtual void Stop() = 0;
};

// Errors of all calls: kInvalidArgument (the object is refused), kPermissionDenied, kUnavailable, kDeadlineExceeded,
// and:
class Cluster {
 public:
  virtual ~Cluster() = default;

  // All pages of one list show the same version of the cluster. kGone when options.from has expired: start again.
  virtual Result<ObjectList> List(Kind kind, const ListOptions& options) = 0;
  // kNotFound.
  virtual Result<nlohmann::json> Get(Kind kind, const ObjectKey& key) = 0;
  // Returns what is stored: with uid, resourceVersion, generation. `status` of the given object is dropped where the
  // kind has a status subresource. metadata.generateName works. kAlreadyExists.
  virtual Result<nlohmann::json> Create(Kind kind, const nlohmann::json& object) = 0;
  // Replaces everything but status. kNotFound; kConflict when metadata.resourceVersion or uid is given and differs.
  virtual Result<nlohmann::json> Replace(Kind kind, const nlohmann::json& object) = 0;
  // Replaces `status` alone. Errors as Replace.
  virtual Result<nlohmann::json> ReplaceStatus(Kind kind, const nlohmann::json& object) = 0;
  // `status`: patch the status subresource. Errors as Replace.
  virtual Result<nlohmann::json> Patch(Kind kind, const ObjectKey& key, PatchType type, const nlohmann::json& patch,
                                       bool status) = 0;
  // A pod that runs gets its grace period and vanishes when its processes have ended; an object with finalizers
  // vanishes with the last of them; others vanish at once, and what they own follows. kNotFound; kConflict for a
  // precondition.
  virtual trainyard::Status Delete(Kind kind, const ObjectKey& key, const DeleteOptions& options) = 0;
  // Deletes all that match, each as Delete() does. Nothing matches: success.
  virtual trainyard::Status DeleteCollection(Kind kind, const ListOptions& options,
                                             std::optional<int64_t> grace_seconds) = 0;
  // kGone when from_version has expired.
  virtual Result<std::unique_ptr<cluster::Watch>> Watch(Kind kind, const WatchOptions& options) = 0;
};

}  // namespace trainyard::cluster
