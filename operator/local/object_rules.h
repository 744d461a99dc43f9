// What an API server does to an object on its way into the store, and what it refuses: defaults of metadata, fields
// that only the server writes, isolation of status, generation, and what of a pod may change. Thread-safety: pure
// functions.
#pragma once

#include <nlohmann/json.hpp>

#include "operator/cluster/cluster.h"

namespace trainyard::local {

// True where status is a subresource: all kinds but events.
bool HasStatus(cluster::Kind kind);

// Fills in what the server owns (uid, creationTimestamp, generation, a pod's first status) and drops what clients must
// not give. Errors: kInvalidArgument.
Status PrepareCreate(cluster::Kind kind, TimePoint now, nlohmann::json& object);
// Makes `next` what a replace of `old` by it stores. Errors: kInvalidArgument, kConflict (resourceVersion, uid).
Status PrepareReplace(cluster::Kind kind, const nlohmann::json& old, nlohmann::json& next);
// The same for the status subresource: everything but status comes from `old`.
Status PrepareStatus(cluster::Kind kind, const nlohmann::json& old, nlohmann::json& next);

// Errors: kInvalidArgument for a patch that does not apply, kConflict for a JSON patch whose test fails.
Result<nlohmann::json> ApplyPatch(cluster::PatchType type, const nlohmann::json& patch, const nlohmann::json& object);

// The string at `pointer` of any JSON, empty if there is none. Status may hold anything: clients write it.
std::string TextAt(const nlohmann::json& object, const nlohmann::json::json_pointer& pointer);
// True when a pod holds a scheduling gate.
bool IsGated(const nlohmann::json& pod);
// Sets one condition of `status.conditions`; the transition time moves only when the status flips. True: it changed.
bool SetCondition(nlohmann::json& object, const std::string& type, const std::string& status, const std::string& reason,
                  const std::string& message, TimePoint now);

}  // namespace trainyard::local
