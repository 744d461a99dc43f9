// A plan for people and for programs.
// Thread-safety: pure functions.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "operator/sizing/plan.h"

namespace trainyard::cli {

struct RenderOptions {
  std::string currency;  // of prices and costs; empty: not named
  bool explain = false;  // every byte, and how sure it is
};

// {"model", "request", "minimum", "minimums", "options", "chosen", "notChosen", "range", "runnersUp", "advice",
// "warnings", "waysOut"}; every key is always there, and docs/sizing.md says what each means. Bytes are whole numbers;
// hours and cost are null where nothing says them, whole with round_hours, else to 6 decimals.
nlohmann::ordered_json PlanToJson(const sizing::Plan& plan, const RenderOptions& options);

// Tables and sentences for a terminal, at most 120 columns for products of the built-in catalogue, closed by a newline.
std::string PlanToText(const sizing::Plan& plan, const RenderOptions& options);

// The same as Markdown, for an issue or a wiki.
std::string PlanToMarkdown(const sizing::Plan& plan, const RenderOptions& options);

// What --explain adds to the text: the terms of every option, the formulas of the chosen one, host and disk, what was
// assumed and how sure it is.
std::string ExplainToText(const sizing::Plan& plan);

// Bandwidth of every product's links, both directions together and one direction.
std::string LinksToText(const sizing::Catalogue& catalogue);
std::string LinksToMarkdown(const sizing::Catalogue& catalogue);

}  // namespace trainyard::cli
