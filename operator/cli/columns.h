// Rows of text as columns. Thread-safety: pure function.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace trainyard::cli {

// Each column as wide as its widest cell, three spaces apart; the last is as long as it is. All rows have as many
// cells.
inline std::string Columns(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.empty() ? 0 : rows[0].size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      out += row[i];
      out += i + 1 < row.size() ? std::string(widths[i] - row[i].size() + 3, ' ') : "\n";
    }
  }
  return out;
}

}  // namespace trainyard::cli
