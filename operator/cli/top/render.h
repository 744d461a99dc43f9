// A TopView for people and for programs. Thread-safety: pure functions.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "operator/cli/top/top_view.h"

namespace trainyard::cli {

struct TopShown {
  bool nodes = false;  // a line for each node in place of products and domains
  bool queue = false;  // the whole queue in place of products and domains
  bool wide = false;   // every line, none cut short or put together with others
};

std::string TopText(const TopView& view, const TopShown& shown);

// Everything, whatever text would leave out:
//   {"now", "levels": [...], "products": [{"product", "nodes", "unfitNodes", "gpus", "used", "free", "stranded",
//    "unfit", "largestGang": [{"scope", "gpus"}]}], "domains": [{"level", "path": [...], "product", ...the same
//    counts, "largestGang"}], "nodes": [{"name", "product", "path", "clique", "usable", "used", "free",
//    "heldBy": [{"name", "gpus"}], "unfit", "oddity"}], "queue": [{"position", "job", "priority", "gpus", "perNode",
//    "product", "since", "expectedStart", "reserved", "victims", "why"}], "notes": [...]}
// Times as Kubernetes writes them; what is empty or unknown is left out.
nlohmann::json TopJson(const TopView& view);

}  // namespace trainyard::cli
