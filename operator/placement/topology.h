// Where nodes are: an ordered list of node labels, far to near, from which the tree of domains is made. No label is
// standard, so there are presets for those that providers and tools write, a choice among them by what the nodes carry,
// and lists of one's own. Pure. Thread-safety: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "operator/base/error.h"

namespace trainyard::placement {

// One level of the tree.
struct TopologyLevel {
  std::string name;  // as a job's gpus.topology.level names it: "rack"
  std::string key;   // of the node label whose value says which
  bool operator==(const TopologyLevel&) const = default;
};

// One way in which nodes say where they are.
struct TopologyScheme {
  std::string name;
  std::vector<TopologyLevel> levels;  // far to near
  size_t anchor = 0;                  // index of the level without which nodes do not speak this scheme
  // True: a level farther than the anchor that most nodes with the anchor lack is left out (a fabric of two tiers has
  // no third). False: the levels are as given.
  bool adapts = false;
};

struct Topology {
  // The first of which any node carries the anchor tells the levels for every node. Without one there are no levels.
  std::vector<TopologyScheme> schemes;

  // "Auto" (any case): all presets in their order. "None": no levels. The name of a preset. Or a list
  // "zone=KEY,rack=KEY", far to near. Errors: kInvalidArgument, one line that names what is wrong.
  static Result<Topology> Parse(std::string_view text);
  static Topology Auto();
  static Topology Of(std::vector<TopologyLevel> levels);
  // Every preset, in the order in which Auto looks.
  static const std::vector<TopologyScheme>& Presets();
};

// Which levels a yard has, kept as its nodes come, change and go. Thread-safety: none.
class LevelCensus {
 public:
  using Labels = std::map<std::string, std::string>;
  explicit LevelCensus(const Topology& topology);

  void Add(const Labels& labels) { Count(labels, 1); }
  void Remove(const Labels& labels) { Count(labels, -1); }
  // Far to near.
  std::vector<TopologyLevel> Levels() const;

 private:
  struct Counts {
    TopologyScheme scheme;
    std::vector<int64_t> carriers;  // by level: nodes that carry it and the anchor
  };
  void Count(const Labels& labels, int64_t by);

  std::vector<Counts> schemes_;
};

// Values of the labels of `levels`, far to near, up to the first that is missing or empty: unknown is never "the same
// place", and a value says something under its parents only.
std::vector<std::string> PathOf(const LevelCensus::Labels& labels, const std::vector<TopologyLevel>& levels);

}  // namespace trainyard::placement
