#include "operator/cli/plan/text_table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace trainyard::cli {
namespace {

bool Holds(const std::vector<size_t>& list, size_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace

std::string Fixed(double value, int decimals) {
  char text[512];
  std::snprintf(text, sizeof(text), "%.*f", decimals, value);
  return text;
}

std::string Thousands(double value) {
  std::string digits = Fixed(value, 0);
  for (size_t i = digits.size(); i > 3 + (digits[0] == '-' ? 1u : 0u);) {
    i -= 3;
    digits.insert(i, ",");
  }
  return digits;
}

std::string HoursText(double hours, bool whole) {
  if (whole || hours >= 1000) return Thousands(hours);
  return Fixed(hours, hours < 10 ? 2 : 1);
}

std::string CostText(double cost, bool whole) { return whole || cost >= 100 ? Thousands(cost) : Fixed(cost, 2); }

std::string Bar(int64_t used, int64_t capacity, size_t width) {
  const double share = capacity > 0 ? static_cast<double>(used) / static_cast<double>(capacity) : 2;
  if (share > 1) return "[" + std::string(width - 1, '#') + ">]";
  const auto filled = std::min(width, static_cast<size_t>(std::lround(share * static_cast<double>(width))));
  return "[" + std::string(filled, '#') + std::string(width - filled, '.') + "]";
}

std::string Wrapped(std::string_view text, std::string_view first, std::string_view next, size_t width) {
  std::string out(first);
  size_t column = first.size();
  bool fresh = true;  // nothing but the opening on this line
  for (size_t at = 0; at < text.size();) {
    size_t end = text.find(' ', at);
    if (end == std::string_view::npos) end = text.size();
    const std::string_view word = text.substr(at, end - at);
    if (!word.empty()) {
      if (!fresh && column + 1 + word.size() > width) {
        out += "\n";
        out += next;
        column = next.size();
        fresh = true;
      }
      if (!fresh) {
        out += " ";
        ++column;
      }
      out += word;
      column += word.size();
      fresh = false;
    }
    at = end + 1;
  }
  return out + "\n";
}

std::string Table::Text(const std::vector<size_t>& left) const {
  std::vector<size_t> widths(rows_[0].size());
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - row[i].size(), ' ');
      line += (i == 0 ? "" : "  ") + (Holds(left, i) ? row[i] + pad : pad + row[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string Table::Markdown(const std::vector<size_t>& left) const {
  std::string out;
  for (size_t n = 0; n < rows_.size(); ++n) {
    out += "|";
    for (const std::string& cell : rows_[n]) out += " " + (cell.empty() ? " " : cell) + " |";
    out += "\n";
    if (n > 0) continue;
    out += "|";
    for (size_t i = 0; i < rows_[n].size(); ++i) out += Holds(left, i) ? " --- |" : " ---: |";
    out += "\n";
  }
  return out;
}

}  // namespace trainyard::cli
