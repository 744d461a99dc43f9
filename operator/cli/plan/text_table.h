// What a terminal shows: columns, bars, wrapped sentences, numbers with separators.
// Thread-safety: pure functions over plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trainyard::cli {

// 2.5 with one decimal, never in exponent form.
std::string Fixed(double value, int decimals);
// 28333.3 -> "28,333".
std::string Thousands(double value);
// An amount of money or hours: two decimals below 10, one below 100 (hours only), else with separators.
std::string HoursText(double hours, bool whole);
std::string CostText(double cost, bool whole);

// Used of capacity as `width` characters in brackets: "[######....]", and "[#########>]" where it is too much.
std::string Bar(int64_t used, int64_t capacity, size_t width);

// `text` broken at spaces so that no line has more than `width` characters; the first line opens with `first`, every
// other with `next`. Ends with a newline.
std::string Wrapped(std::string_view text, std::string_view first, std::string_view next, size_t width = 118);

// Columns as wide as their widest cell; text to the left, numbers to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> head) : rows_{std::move(head)} {}
  void Row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // The columns named in `left` (by index) are text, the others numbers.
  std::string Text(const std::vector<size_t>& left) const;
  // The same as a table of Markdown.
  std::string Markdown(const std::vector<size_t>& left) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace trainyard::cli
