#include "operator/placement/topo_matrix.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>

#include "operator/api/names.h"

namespace trainyard::placement {
namespace {

constexpr size_t kMostText = 1 << 20;
constexpr size_t kMostColumns = 256;

struct CodeName {
  std::string_view name;
  TopoCode code;
};
constexpr CodeName kCodes[] = {
    {"X", TopoCode::kSelf},         {"SYS", TopoCode::kSystem},   {"NODE", TopoCode::kNode},
    {"PHB", TopoCode::kHostBridge}, {"PXB", TopoCode::kSwitches}, {"PIX", TopoCode::kSwitch},
};

tl::unexpected<Error> Bad(const std::string& what) { return Fail(ErrorCode::kInvalidArgument, what); }

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Without ESC [ ... letter, and without carriage returns.
std::string StripEscapes(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') continue;
    if (text[i] != '\x1b') {
      out += text[i];
      continue;
    }
    if (i + 1 < text.size() && text[i + 1] == '[') ++i;
    while (i + 1 < text.size() && (IsDigit(text[i + 1]) || text[i + 1] == ';')) ++i;
    if (i + 1 < text.size() && std::isalpha(static_cast<unsigned char>(text[i + 1])) != 0) ++i;
  }
  return out;
}

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

// Cells of a line, empty ones dropped: at tabs if it has any, else at blanks.
std::vector<std::string_view> Cells(std::string_view line) {
  std::vector<std::string_view> cells;
  const bool tabs = line.find('\t') != std::string_view::npos;
  const std::string_view separators = tabs ? "\t" : " ";
  while (!line.empty()) {
    const size_t end = line.find_first_of(separators);
    std::string_view cell = line.substr(0, end);
    while (!cell.empty() && cell.front() == ' ') cell.remove_prefix(1);
    while (!cell.empty() && cell.back() == ' ') cell.remove_suffix(1);
    if (!cell.empty()) cells.push_back(cell);
    line.remove_prefix(end == std::string_view::npos ? line.size() : end + 1);
  }
  return cells;
}

bool IsGpuName(std::string_view cell) {
  return cell.size() > 3 && cell.size() < 8 && cell.starts_with("GPU") &&
         std::all_of(cell.begin() + 3, cell.end(), IsDigit);
}

// The code at the start of `text`, which it is cut off; nullopt: there is none.
std::optional<TopoCell> TakeCode(std::string_view& text) {
  for (const auto& [name, code] : kCodes) {
    if (!text.starts_with(name)) continue;
    text.remove_prefix(name.size());
    return TopoCell{code, 0};
  }
  if (!text.starts_with("NV")) return std::nullopt;
  int64_t links = 0;
  const auto [stop, error] = std::from_chars(text.data() + 2, text.data() + text.size(), links);
  if (error != std::errc() || links <= 0 || links > 1000) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(stop - text.data()));
  return TopoCell{TopoCode::kNvLink, links};
}

// Columns of the header: GPUs, then adapters. Empty: the line is no header.
std::vector<std::string> Header(std::string_view line) {
  std::vector<std::string> columns;
  for (const std::string_view cell : Cells(line)) {
    if (columns.empty() ? cell != "GPU0" : (cell.starts_with("CPU") || cell.starts_with("NUMA") || cell == "GPU"))
      break;
    if (cell.find("Affinity") != std::string_view::npos) break;
    columns.emplace_back(cell);
  }
  return columns;
}

// The first `columns` cells of a row, cells that have grown together taken apart.
Result<std::vector<TopoCell>> Row(const std::string& name, const std::vector<std::string_view>& cells,
                                  const std::vector<std::string>& columns) {
  std::vector<TopoCell> row;
  for (size_t i = 1; i < cells.size() && row.size() < columns.size(); ++i) {
    std::string_view rest = cells[i];
    while (!rest.empty() && row.size() < columns.size()) {
      const auto cell = TakeCode(rest);
      if (!cell) {
        return Bad("row " + name + ", column " + columns[row.size()] + ": '" + api::Printable(cells[i]) +
                   "' is no distance; known are X, SYS, NODE, PHB, PXB, PIX and NV#");
      }
      row.push_back(*cell);
    }
    if (!rest.empty()) {
      return Bad("row " + name + ", column " + columns.back() + ": '" + api::Printable(cells[i]) +
                 "' is more than one cell");
    }
  }
  if (row.size() < columns.size()) {
    return Bad("row " + name + ": column " + columns[row.size()] + " is missing; the header has " +
               std::to_string(columns.size()) + " columns");
  }
  return row;
}

// "NIC0: mlx5_0"
void ReadLegend(std::string_view line, std::vector<TopoNic>& nics) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  const auto left = Cells(line.substr(0, colon)), right = Cells(line.substr(colon + 1));
  if (left.size() != 1 || right.size() != 1) return;
  for (TopoNic& nic : nics) {
    if (nic.name == left.front()) nic.device = api::Printable(right.front());
  }
}

tl::unexpected<Error> NoMatrix(const std::vector<std::string_view>& lines) {
  for (const std::string_view line : lines) {
    const auto cells = Cells(line);
    if (cells.empty()) continue;
    return Bad("no matrix of nvidia-smi topo -m: no line begins with GPU0 as a header; it says '" +
               api::Printable(line) + "'");
  }
  return Bad("empty: the output of nvidia-smi topo -m was expected");
}

Status CheckGpus(const std::vector<std::vector<TopoCell>>& gpus) {
  const auto text = [](const TopoCell& cell) {
    return std::string(TopoCodeName(cell.code)) + (cell.nvlinks > 0 ? std::to_string(cell.nvlinks) : "");
  };
  for (size_t i = 0; i < gpus.size(); ++i) {
    for (size_t j = 0; j < gpus.size(); ++j) {
      const std::string where = "row GPU" + std::to_string(i) + ", column GPU" + std::to_string(j) + ": ";
      if ((gpus[i][j].code == TopoCode::kSelf) != (i == j)) {
        return Bad(where + text(gpus[i][j]) + (i == j ? " where X belongs" : " off the diagonal"));
      }
      if (!(gpus[i][j] == gpus[j][i])) {
        return Bad(where + text(gpus[i][j]) + ", but the other way round " + text(gpus[j][i]));
      }
    }
  }
  return {};
}

// Orders distances, far to near.
bool Farther(const TopoCell& a, const TopoCell& b) {
  return a.code != b.code ? a.code < b.code : a.nvlinks < b.nvlinks;
}

// Links that an island of fully linked GPUs is missing: the most that a pair has is what each should have.
void FindFaults(const TopoMatrix& matrix, const std::vector<int64_t>& island, std::vector<std::string>& faults) {
  int64_t most = 0;
  std::map<int64_t, int64_t> best;  // GPU -> links of its best pair
  const auto links = [&](int64_t a, int64_t b) {
    return matrix.gpus[static_cast<size_t>(a)][static_cast<size_t>(b)].nvlinks;
  };
  for (const int64_t a : island) {
    for (const int64_t b : island) {
      if (a != b) best[a] = std::max(best[a], links(a, b));
    }
    most = std::max(most, best[a]);
  }
  for (const int64_t a : island) {
    if (best[a] < most) {
      faults.push_back("GPU" + std::to_string(a) + " has at most " + std::to_string(best[a]) +
                       " NVLinks to a GPU of its island, others have " + std::to_string(most));
    }
  }
  for (const int64_t a : island) {
    for (const int64_t b : island) {
      if (a < b && links(a, b) < std::min(best[a], best[b])) {
        faults.push_back("GPU" + std::to_string(a) + " and GPU" + std::to_string(b) + " have " +
                         std::to_string(links(a, b)) + " NVLinks between them, other pairs have " +
                         std::to_string(most));
      }
    }
  }
}

}  // namespace

std::string_view TopoCodeName(TopoCode code) {
  for (const auto& [name, known] : kCodes) {
    if (known == code) return name;
  }
  return "NV";
}

Result<TopoMatrix> ParseTopoMatrix(std::string_view raw) {
  if (raw.size() > kMostText) return Bad("longer than 1 MiB: not the output of nvidia-smi topo -m");
  const std::string text = StripEscapes(raw);
  const std::vector<std::string_view> lines = Lines(text);
  size_t at = 0;
  std::vector<std::string> columns;
  while (at < lines.size() && columns.empty()) columns = Header(lines[at++]);
  // A row of a matrix without a header begins with GPU0 as well.
  if (columns.empty() || (columns.size() > 1 && columns[1] == "X")) return NoMatrix(lines);
  if (columns.size() > kMostColumns) return Bad("more than " + std::to_string(kMostColumns) + " columns");
  const auto first_nic = static_cast<size_t>(
      std::find_if_not(columns.begin(), columns.end(), [](const std::string& c) { return IsGpuName(c); }) -
      columns.begin());
  for (size_t i = 0; i < columns.size(); ++i) {
    const bool in_order = i < first_nic ? columns[i] == "GPU" + std::to_string(i) : !IsGpuName(columns[i]);
    if (!in_order) return Bad("header: '" + api::Printable(columns[i]) + "' is out of order");
    columns[i] = api::Printable(columns[i]);
    if (std::find(columns.begin(), columns.begin() + static_cast<std::ptrdiff_t>(i), columns[i]) !=
        columns.begin() + static_cast<std::ptrdiff_t>(i)) {
      return Bad("header: column " + columns[i] + " is there twice");
    }
  }

  TopoMatrix matrix;
  for (size_t i = first_nic; i < columns.size(); ++i) {
    matrix.nics.push_back({.name = columns[i], .device = columns[i], .gpus = {}});
  }
  matrix.gpus.resize(first_nic);
  for (; at < lines.size(); ++at) {
    const auto cells = Cells(lines[at]);
    if (cells.empty()) continue;
    const auto column = std::find(columns.begin(), columns.end(), cells.front());
    if (column == columns.end()) {
      if (IsGpuName(cells.front())) return Bad("row " + std::string(cells.front()) + " is no column of the header");
      ReadLegend(lines[at], matrix.nics);
      continue;
    }
    const auto index = static_cast<size_t>(column - columns.begin());
    if (index >= first_nic) continue;  // what it says stands in the columns of the adapters as well
    if (!matrix.gpus[index].empty()) return Bad("row " + *column + " is there twice");
    auto row = Row(*column, cells, columns);
    if (!row) return Fail(row.error());
    matrix.gpus[index] = *std::move(row);
  }
  for (size_t i = 0; i < first_nic; ++i) {
    if (matrix.gpus[i].empty()) return Bad("row " + columns[i] + " is missing");
    for (size_t nic = 0; nic < matrix.nics.size(); ++nic) {
      const TopoCell& cell = matrix.gpus[i][first_nic + nic];
      if (cell.code == TopoCode::kSelf || cell.code == TopoCode::kNvLink) {
        return Bad("row " + columns[i] + ", column " + columns[first_nic + nic] +
                   ": an adapter is at no such distance");
      }
      matrix.nics[nic].gpus.push_back(cell);
    }
    matrix.gpus[i].resize(first_nic);
  }
  if (Status status = CheckGpus(matrix.gpus); !status) return Fail(status.error());
  return matrix;
}

TopoFacts Study(const TopoMatrix& matrix) {
  TopoFacts facts;
  const size_t count = matrix.gpus.size();
  std::vector<bool> seen(count);
  for (size_t start = 0; start < count; ++start) {
    if (seen[start]) continue;
    seen[start] = true;
    std::vector<int64_t> island = {static_cast<int64_t>(start)};
    for (size_t next = 0; next < island.size(); ++next) {
      for (size_t to = 0; to < count; ++to) {
        if (seen[to] || matrix.gpus[static_cast<size_t>(island[next])][to].code != TopoCode::kNvLink) continue;
        seen[to] = true;
        island.push_back(static_cast<int64_t>(to));
      }
    }
    std::sort(island.begin(), island.end());
    TopoCell worst;
    for (const int64_t a : island) {
      for (const int64_t b : island) {
        const TopoCell& cell = matrix.gpus[static_cast<size_t>(a)][static_cast<size_t>(b)];
        if (Farther(cell, worst)) worst = cell;
      }
    }
    if (worst.code == TopoCode::kNvLink) FindFaults(matrix, island, facts.faults);
    facts.worst.push_back(worst);
    facts.islands.push_back(std::move(island));
  }
  const bool any = std::any_of(facts.islands.begin(), facts.islands.end(), [](const auto& i) { return i.size() > 1; });
  if (any) {
    const bool whole = facts.islands.size() == 1 && facts.worst.front().code == TopoCode::kNvLink;
    facts.link = whole ? LinkClass::kNvSwitchNode : LinkClass::kNvLinkBridges;
  }
  for (const TopoNic& nic : matrix.nics) {
    TopoFacts::Nearest nearest{.nic = nic.device == nic.name ? nic.name : nic.name + " (" + nic.device + ")",
                               .cell = nic.gpus.front(),
                               .gpus = {}};
    for (const TopoCell& cell : nic.gpus) {
      if (Farther(nearest.cell, cell)) nearest.cell = cell;
    }
    for (size_t gpu = 0; gpu < count; ++gpu) {
      if (nic.gpus[gpu] == nearest.cell) nearest.gpus.push_back(static_cast<int64_t>(gpu));
    }
    facts.nics.push_back(std::move(nearest));
  }
  return facts;
}

}  // namespace trainyard::placement
