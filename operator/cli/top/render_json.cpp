#include "operator/cli/top/render.h"

namespace trainyard::cli {
namespace {

using nlohmann::json;

void Put(json& out, const char* key, const std::string& text) {
  if (!text.empty()) out[key] = text;
}

json Counts(const placement::Tally& tally) {
  return {{"nodes", tally.nodes},
          {"unfitNodes", tally.unfit_nodes},
          {"gpus", tally.used + tally.free},
          {"used", tally.used},
          {"free", tally.free},
          {"stranded", tally.stranded},
          {"unfit", tally.unfit}};
}

json NodeJson(const NodeView& node) {
  json out = {{"name", node.name}, {"usable", node.usable}, {"used", node.used}, {"free", node.free}};
  Put(out, "product", node.product);
  if (!node.path.empty()) out["path"] = node.path;
  Put(out, "clique", node.clique);
  for (const Holder& holder : node.held_by) out["heldBy"].push_back({{"name", holder.name}, {"gpus", holder.gpus}});
  Put(out, "unfit", node.unfit);
  Put(out, "oddity", node.oddity);
  return out;
}

json QueueJson(const QueueView& entry) {
  json out = {{"position", entry.position}, {"job", entry.job},          {"priority", entry.priority},
              {"gpus", entry.gpus},         {"perNode", entry.per_node}, {"since", FormatTime(entry.since)},
              {"reserved", entry.reserved}};
  Put(out, "product", entry.product);
  if (entry.expected_start) out["expectedStart"] = FormatTime(*entry.expected_start);
  if (!entry.victims.empty()) out["victims"] = entry.victims;
  Put(out, "why", entry.why);
  return out;
}

}  // namespace

json TopJson(const TopView& view) {
  json out = {{"now", FormatTime(view.now)}, {"levels", view.levels}};
  for (const char* list : {"products", "domains", "nodes", "queue", "notes"}) out[list] = json::array();
  for (const ProductView& product : view.products) {
    json row = Counts(product.tally);
    row["product"] = product.product;
    row["largestGang"] = json::array();
    for (const LargestGang& gang : product.largest) {
      row["largestGang"].push_back({{"scope", gang.scope}, {"gpus", gang.gpus}});
    }
    out["products"].push_back(std::move(row));
  }
  for (const DomainView& domain : view.domains) {
    json row = Counts(domain.tally);
    row["level"] = domain.level;
    row["path"] = domain.path;
    row["product"] = domain.product;
    row["largestGang"] = domain.tally.largest_gang;
    out["domains"].push_back(std::move(row));
  }
  for (const NodeView& node : view.nodes) out["nodes"].push_back(NodeJson(node));
  for (const QueueView& entry : view.queue) out["queue"].push_back(QueueJson(entry));
  for (const std::string& note : view.notes) out["notes"].push_back(note);
  return out;
}

}  // namespace trainyard::cli
