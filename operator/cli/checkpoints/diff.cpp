// RunCheckpointsDiff of commands.h.
#include <cstdio>
#include <ostream>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/base/quantity.h"
#include "operator/cli/checkpoints/commands.h"
#include "operator/cli/checkpoints/locate.h"
#include "operator/cli/columns.h"
#include "operator/cli/exit_codes.h"
#include "trainer/checkpoint/compare.h"

namespace trainyard::cli {
namespace {

using checkpoint::Comparison;
using checkpoint::TensorDifference;

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g", value);
  return text;
}

std::string Note(const TensorDifference& d) {
  std::string note = d.structure;
  const auto add = [&](const std::string& words) { note += (note.empty() ? "" : "; ") + words; };
  if (!d.dtypes.empty()) add(d.dtypes);
  if (d.not_finite > 0) add(std::to_string(d.not_finite) + " pairs are not finite");
  return note.empty() ? "-" : note;
}

void WriteText(const Comparison& c, std::ostream& out) {
  if (c.same()) {
    out << "the same: " << c.tensors << " tensors, " << FormatBytes(static_cast<double>(c.bytes)) << "\n";
  } else {
    std::vector<std::vector<std::string>> rows = {
        {"TENSOR", "DIFFERENT", "ELEMENTS", "LARGEST |A-B|", "RELATIVE", "NOTE"}};
    for (const TensorDifference& d : c.differences) {
      const bool figures = d.structure.empty();
      rows.push_back({d.name, figures ? std::to_string(d.different) : "-", figures ? std::to_string(d.elements) : "-",
                      figures ? Number(d.largest_absolute) : "-", figures ? Number(d.largest_relative) : "-", Note(d)});
    }
    out << Columns(rows) << c.differences.size() << " tensors differ; " << c.tensors << " are in both\n";
  }
  if (c.train_state.empty()) return;
  out << "train state differs in:";
  for (const std::string& key : c.train_state) out << " " << key;
  out << "\n";
}

nlohmann::ordered_json ToJson(const std::string& a, const std::string& b, const Comparison& c) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const TensorDifference& d : c.differences) {
    nlohmann::ordered_json row = {{"name", d.name}};
    if (!d.structure.empty()) {
      row["structure"] = d.structure;
    } else {
      row["elements"] = d.elements;
      row["different"] = d.different;
      row["notFinite"] = d.not_finite;
      row["largestAbsolute"] = d.largest_absolute;
      row["largestRelative"] = d.largest_relative;
    }
    if (!d.dtypes.empty()) row["dtypes"] = d.dtypes;
    rows.push_back(std::move(row));
  }
  return {{"a", a},
          {"b", b},
          {"same", c.same()},
          {"tensors", c.tensors},
          {"bytes", c.bytes},
          {"differences", std::move(rows)},
          {"trainState", c.train_state}};
}

}  // namespace

int RunCheckpointsDiff(const CheckpointRef& a, const CheckpointRef& b, bool model_only, bool json, std::ostream& out,
                       std::ostream& err) {
  std::vector<checkpoint::Reader> readers;
  std::vector<std::string> paths;
  for (const CheckpointRef* ref : {&a, &b}) {
    Result<std::string> path = Locate(*ref, err);
    if (!path) return Complain(path.error(), err);
    Result<checkpoint::Reader> reader = checkpoint::Reader::Open(*path);
    if (!reader) return Complain(reader.error(), err);
    readers.push_back(std::move(*reader));
    paths.push_back(std::move(*path));
  }
  const Result<Comparison> comparison = checkpoint::Compare(readers[0], readers[1], model_only);
  if (!comparison) return Complain(comparison.error(), err);
  if (json) {
    out << ToJson(paths[0], paths[1], *comparison).dump(2, ' ', false, nlohmann::json::error_handler_t::replace)
        << "\n";
  } else {
    WriteText(*comparison, out);
  }
  return comparison->same() ? kExitOk : kExitJobFailed;
}

}  // namespace trainyard::cli
