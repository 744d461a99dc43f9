// What the nodes of a yard have for a request that fits nowhere: counts, for those who find the words. Private to the
// room. Pure. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "operator/placement/place.h"

namespace trainyard::placement {

// Nodes of one domain that are open to the request.
struct DomainRoom {
  uint32_t domain = 0;  // as YardIndex::Domains has it
  int64_t nodes = 0;
  int64_t free_gpus = 0;
  int64_t with_room = 0;  // nodes that could take a pod now
};

// Nodes whose product is asked for.
struct Room {
  std::map<std::string, int64_t> unfit;  // reason -> nodes that take no gang, or not this one
  // What the node selector and the affinity of the job's own template do, taints aside; told only if it has any.
  int64_t barred = 0;             // of `unfit`: they alone bar the node
  int64_t selected = 0;           // nodes that they allow, open or not
  int64_t others = 0;             // nodes with GPUs of a product that is not asked for, or not known, that they allow
  std::vector<std::string> open;  // names of the nodes that the job may use, at most four; the rest is counted
  // All below is about nodes that the job may use.
  int64_t eligible = 0;
  int64_t with_room = 0;                   // could take a pod now
  std::map<std::string, int64_t> lacking;  // resource -> nodes with enough GPUs that lack it
  int64_t free_gpus = 0;
  int64_t largest_usable = 0;  // the most GPUs that any of them has, in use or not
  int64_t largest_free = 0;
  std::string largest_node;  // has largest_free
  int64_t kept = 0;          // GPUs that would be free but for gangs ahead in the queue
  // In ascending order.
  std::vector<DomainRoom> nvlink_domains;  // empty if the request needs no links
  std::vector<DomainRoom> level_domains;   // of the level that the request names; empty without one
};

Room RoomFor(const Yard& yard, const GangRequest& request);

}  // namespace trainyard::placement
