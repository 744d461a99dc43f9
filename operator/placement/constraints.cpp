#include "operator/placement/constraints.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace trainyard::placement {
namespace {

using Labels = std::map<std::string, std::string>;

// A toleration that ends after some seconds suits no gang: it would be evicted soon after its start.
bool Tolerates(const api::Toleration& toleration, const api::Taint& taint) {
  if (!toleration.effect.empty() && toleration.effect != taint.effect) return false;
  if (toleration.seconds && taint.effect == "NoExecute") return false;
  if (toleration.op == "Exists") return toleration.key.empty() || toleration.key == taint.key;
  if (!toleration.op.empty() && toleration.op != "Equal") return false;
  return !toleration.key.empty() && toleration.key == taint.key && toleration.value == taint.value;
}

const api::Taint* FirstUntolerated(const YardNode& node, const api::NodeConstraints& constraints) {
  for (const api::Taint& taint : node.taints) {
    const auto& all = constraints.tolerations;
    if (std::none_of(all.begin(), all.end(), [&](const api::Toleration& t) { return Tolerates(t, taint); })) {
      return &taint;
    }
  }
  return nullptr;
}

const Labels& LabelsOf(const YardNode& node) {
  static const Labels* const kNone = new Labels();
  return node.snapshot != nullptr ? node.snapshot->labels : *kNone;
}

std::optional<int64_t> Integer(const std::string& text) {
  int64_t value = 0;
  const char* begin = text.data();
  const char* end = begin + text.size();
  if (begin != end && *begin == '+') ++begin;
  if (begin == end || (begin != text.data() && *begin == '-')) return std::nullopt;
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

// `value`: of the label or field; null: it is not there.
bool Holds(const api::NodeRequirement& requirement, const std::string* value) {
  const auto listed = [&] {
    return std::find(requirement.values.begin(), requirement.values.end(), *value) != requirement.values.end();
  };
  if (requirement.op == "In") return value != nullptr && listed();
  if (requirement.op == "NotIn") return value == nullptr || !listed();
  if (requirement.op == "Exists") return value != nullptr;
  if (requirement.op == "DoesNotExist") return value == nullptr;
  if (value == nullptr || requirement.values.size() != 1) return false;
  const auto have = Integer(*value), bound = Integer(requirement.values.front());
  if (!have || !bound) return false;
  if (requirement.op == "Gt") return *have > *bound;
  return requirement.op == "Lt" && *have < *bound;
}

bool FieldHolds(const YardNode& node, const api::NodeRequirement& requirement) {
  return Holds(requirement, requirement.key == "metadata.name" ? &node.name : nullptr);
}

// The first requirement of a term that does not hold; null: all hold.
const api::NodeRequirement* FirstFailing(const YardNode& node, const api::NodeTerm& term) {
  const Labels& labels = LabelsOf(node);
  for (const api::NodeRequirement& requirement : term.expressions) {
    const auto label = labels.find(requirement.key);
    if (!Holds(requirement, label == labels.end() ? nullptr : &label->second)) return &requirement;
  }
  for (const api::NodeRequirement& requirement : term.fields) {
    if (!FieldHolds(node, requirement)) return &requirement;
  }
  return nullptr;
}

bool Matches(const YardNode& node, const api::NodeTerm& term) {
  return (!term.expressions.empty() || !term.fields.empty()) && FirstFailing(node, term) == nullptr;
}

bool AffinityHolds(const YardNode& node, const api::NodeConstraints& constraints) {
  const auto& terms = constraints.affinity;
  return terms.empty() ||
         std::any_of(terms.begin(), terms.end(), [&](const api::NodeTerm& term) { return Matches(node, term); });
}

const std::pair<const std::string, std::string>* FirstUnselected(const YardNode& node,
                                                                 const api::NodeConstraints& constraints) {
  const Labels& labels = LabelsOf(node);
  for (const auto& wanted : constraints.node_selector) {
    const auto label = labels.find(wanted.first);
    if (label == labels.end() || label->second != wanted.second) return &wanted;
  }
  return nullptr;
}

// By position: 1 where something holds.
using NodeSet = std::vector<uint8_t>;

void Intersect(NodeSet& set, const NodeSet& other) {
  for (size_t i = 0; i < set.size(); ++i) set[i] &= other[i];
}

NodeSet WhereLabel(const Yard& yard, const api::NodeRequirement& requirement) {
  NodeSet set(yard.nodes().size(), Holds(requirement, nullptr) ? 1 : 0);
  const YardIndex::ByValue& values = yard.index().Label(requirement.key);
  const auto mark = [&set](const YardIndex::Positions& nodes, bool holds) {
    for (const uint32_t node : nodes) set[node] = holds ? 1 : 0;
  };
  if (requirement.op == "In") {  // the list may be long, and so may be that of the values there are
    for (const std::string& value : requirement.values) {
      if (const auto found = values.find(value); found != values.end()) mark(found->second, true);
    }
    return set;
  }
  for (const auto& [value, nodes] : values) mark(nodes, Holds(requirement, &value));
  return set;
}

NodeSet WhereField(const Yard& yard, const api::NodeRequirement& requirement) {
  NodeSet set(yard.nodes().size());
  for (size_t i = 0; i < set.size(); ++i) set[i] = FieldHolds(yard.nodes()[i], requirement) ? 1 : 0;
  return set;
}

// Where each requirement of a term holds, in the order of FirstFailing.
std::vector<NodeSet> WhereEach(const Yard& yard, const api::NodeTerm& term) {
  std::vector<NodeSet> sets;
  for (const api::NodeRequirement& requirement : term.expressions) sets.push_back(WhereLabel(yard, requirement));
  for (const api::NodeRequirement& requirement : term.fields) sets.push_back(WhereField(yard, requirement));
  if (sets.empty()) sets.emplace_back(yard.nodes().size(), 0);
  return sets;
}

NodeSet WhereAny(const Yard& yard, const std::vector<api::NodeTerm>& terms) {
  NodeSet any(yard.nodes().size(), 0);
  for (const api::NodeTerm& term : terms) {
    NodeSet all(any.size(), 1);
    for (const NodeSet& set : WhereEach(yard, term)) Intersect(all, set);
    for (size_t i = 0; i < any.size(); ++i) any[i] |= all[i];
  }
  return any;
}

std::string Text(const api::NodeRequirement& requirement) {
  std::string text = requirement.key + " " + requirement.op;
  if (requirement.values.empty()) return text;
  text += " [";
  for (size_t i = 0; i < requirement.values.size() && i < 3; ++i) {
    text += (i > 0 ? ", " : "") + requirement.values[i];
  }
  return text + (requirement.values.size() > 3 ? ", ...]" : "]");
}

std::string AffinityText(const YardNode& node, const api::NodeConstraints& constraints) {
  if (constraints.affinity.size() != 1) return "node affinity (none of its terms holds)";
  const api::NodeRequirement* failing = FirstFailing(node, constraints.affinity.front());
  return failing != nullptr ? "node affinity " + Text(*failing) : "node affinity (its term has no requirement)";
}

}  // namespace

bool Allowed(const YardNode& node, const api::NodeConstraints& constraints) {
  return (node.taints.empty() || FirstUntolerated(node, constraints) == nullptr) &&
         (constraints.node_selector.empty() || FirstUnselected(node, constraints) == nullptr) &&
         (constraints.affinity.empty() || AffinityHolds(node, constraints));
}

std::string WhyBarred(const YardNode& node, const api::NodeConstraints& constraints) {
  if (const api::Taint* taint = FirstUntolerated(node, constraints)) return "taint " + TaintText(*taint);
  if (const auto* wanted = FirstUnselected(node, constraints)) {
    return "node selector " + wanted->first + "=" + wanted->second;
  }
  return AffinityHolds(node, constraints) ? "" : AffinityText(node, constraints);
}

std::vector<uint32_t> Judge(const Yard& yard, const api::NodeConstraints& constraints) {
  std::vector<uint32_t> bars(yard.nodes().size(), 0);
  uint32_t bar = 0;
  for (const auto& [taints, nodes] : yard.index().taints()) {
    if (FirstUntolerated(yard.nodes()[nodes.front()], constraints) == nullptr) continue;
    ++bar;
    for (const uint32_t node : nodes) bars[node] = bar;
  }
  // What bars first is what WhyBarred names.
  const auto bar_outside = [&](const NodeSet& set) {
    ++bar;
    for (size_t i = 0; i < bars.size(); ++i) {
      if (set[i] == 0 && bars[i] == 0) bars[i] = bar;
    }
  };
  for (const auto& [key, value] : constraints.node_selector) bar_outside(WhereLabel(yard, {key, "In", {value}}));
  if (constraints.affinity.size() == 1) {
    for (const NodeSet& set : WhereEach(yard, constraints.affinity.front())) bar_outside(set);
  } else if (!constraints.affinity.empty()) {
    bar_outside(WhereAny(yard, constraints.affinity));
  }
  return bars;
}

}  // namespace trainyard::placement
