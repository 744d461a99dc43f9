#include "operator/cli/top/render.h"

#include <algorithm>
#include <tuple>

#include "operator/cli/plan/text_table.h"

namespace trainyard::cli {
namespace {

// What a first look shows; the rest is counted, and said where it can be seen.
constexpr size_t kDomainLines = 40;
constexpr size_t kQueueLines = 20;
constexpr size_t kHolders = 3;
constexpr size_t kBarWidth = 10;

std::string Plural(int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string Number(int64_t value) { return std::to_string(value); }

std::string Joined(const std::vector<std::string>& parts, const char* separator) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : separator) + part;
  return text;
}

// "2d 3h", "3h 5m", "4m 10s", "12s".
std::string Age(Milliseconds age) {
  const int64_t seconds = std::max<int64_t>(0, age.count() / 1000);
  if (seconds < 60) return Number(seconds) + "s";
  if (seconds < 3600) return Number(seconds / 60) + "m " + Number(seconds % 60) + "s";
  if (seconds < 86'400) return Number(seconds / 3600) + "h " + Number(seconds / 60 % 60) + "m";
  return Number(seconds / 86'400) + "d " + Number(seconds / 3600 % 24) + "h";
}

// An estimate: no seconds.
std::string About(Milliseconds time) {
  const int64_t minutes = std::max<int64_t>(1, time.count() / 60'000);
  return "about " + (minutes < 60 ? Number(minutes) + "m" : Age(time));
}

std::string Summary(const TopView& view) {
  placement::Tally all;
  for (const ProductView& product : view.products) {
    all.nodes += product.tally.nodes;
    all.unfit_nodes += product.tally.unfit_nodes;
    all.used += product.tally.used;
    all.free += product.tally.free;
    all.stranded += product.tally.stranded;
    all.unfit += product.tally.unfit;
  }
  int64_t asked = 0;
  for (const QueueView& entry : view.queue) asked += entry.gpus;
  std::string text = Plural(all.nodes, "node") + " with GPUs";
  if (all.unfit_nodes > 0) text += ", " + Number(all.unfit_nodes) + " unfit";
  text += "; " + Plural(all.used + all.free, "GPU") + " on fit nodes: " + Number(all.used) + " used, " +
          Number(all.free) + " free";
  if (all.stranded > 0) text += " (" + Number(all.stranded) + " stranded)";
  text += view.queue.empty() ? "; no job waits"
                             : "; " + Plural(static_cast<int64_t>(view.queue.size()), "job") +
                                   (view.queue.size() == 1 ? " waits" : " wait") + " for " + Plural(asked, "GPU");
  return text + "\n";
}

// Of fit nodes: GPUS = USED + FREE.
std::vector<std::string> Cells(const placement::Tally& tally) {
  const int64_t gpus = tally.used + tally.free;
  return {Number(tally.nodes), Number(gpus),       Bar(tally.used, std::max<int64_t>(gpus, 1), kBarWidth),
          Number(tally.used),  Number(tally.free), Number(tally.stranded),
          Number(tally.unfit)};
}

void Append(std::vector<std::string>& cells, const std::vector<std::string>& more) {
  cells.insert(cells.end(), more.begin(), more.end());
}

std::string ProductsText(const TopView& view) {
  Table table({"PRODUCT", "NODES", "GPUS", "", "USED", "FREE", "STRANDED", "UNFIT", "LARGEST GANG NOW"});
  for (const ProductView& product : view.products) {
    std::vector<std::string> largest;
    for (const LargestGang& gang : product.largest) largest.push_back(Number(gang.gpus) + " " + gang.scope);
    std::vector<std::string> cells = {product.product};
    Append(cells, Cells(product.tally));
    cells.push_back(Joined(largest, ", "));
    table.Row(std::move(cells));
  }
  return table.Text({0, 3, 8});
}

// The tree of domains, one product after the other, in as few lines as tell the same: what is used or free throughout
// is not opened, and neighbours that look alike share a line.
class DomainLines {
 public:
  DomainLines(const std::vector<DomainView>& rows, bool wide) : rows_(rows), wide_(wide) { Siblings(0, rows.size()); }

  std::string Text() const {
    Table table({"DOMAIN", "LEVEL", "PRODUCT", "NODES", "GPUS", "", "USED", "FREE", "STRANDED", "UNFIT", "LARGEST"});
    const size_t shown = wide_ ? lines_.size() : std::min(lines_.size(), kDomainLines);
    for (size_t i = 0; i < shown; ++i) {
      const auto& [name, row] = lines_[i];
      std::vector<std::string> cells = {name, row->level, row->product};
      Append(cells, Cells(row->tally));
      cells.push_back(Number(row->tally.largest_gang));
      table.Row(std::move(cells));
    }
    std::string text = table.Text({0, 1, 2, 5});
    if (shown < lines_.size()) {
      text += "and " + Number(static_cast<int64_t>(lines_.size() - shown)) + " lines more: -o wide shows all\n";
    }
    return text;
  }

 private:
  size_t End(size_t first) const {
    size_t end = first + 1;
    while (end < rows_.size() && rows_[end].path.size() > rows_[first].path.size()) ++end;
    return end;
  }
  bool Opens(size_t first) const {
    const placement::Tally& tally = rows_[first].tally;
    const bool even = tally.unfit_nodes == 0 && (tally.free == 0 || tally.used == 0);
    return End(first) > first + 1 && (wide_ || !even);
  }
  bool Alike(size_t a, size_t b) const {
    const auto numbers = [](const DomainView& row) {
      const placement::Tally& t = row.tally;
      return std::tie(row.level, row.product, t.nodes, t.unfit_nodes, t.used, t.free, t.stranded, t.unfit,
                      t.largest_gang);
    };
    return !wide_ && !Opens(a) && !Opens(b) && numbers(rows_[a]) == numbers(rows_[b]);
  }
  void Siblings(size_t first, size_t end) {
    while (first < end) {
      const size_t depth = rows_[first].path.size();
      size_t last = first, count = 1;
      for (size_t next = End(first); next < end && rows_[next].path.size() == depth && Alike(first, next);
           next = End(next)) {
        last = next;
        ++count;
      }
      const std::string& name = rows_[first].path.back();
      std::string text = std::string(2 * (depth - 1), ' ') + name;
      if (count > 1) text += " .. " + rows_[last].path.back() + " (each of " + std::to_string(count) + ")";
      lines_.emplace_back(std::move(text), &rows_[first]);
      if (Opens(first)) Siblings(first + 1, End(first));
      first = End(last);
    }
  }

  const std::vector<DomainView>& rows_;
  const bool wide_;
  std::vector<std::pair<std::string, const DomainView*>> lines_;
};

std::string NodesText(const TopView& view, bool wide) {
  Table table({"NODE", "PRODUCT", "GPUS", "USED", "FREE", "DOMAIN", "HELD BY"});
  for (const NodeView& node : view.nodes) {
    std::vector<std::string> held;
    for (const Holder& holder : node.held_by) {
      if (!wide && held.size() == kHolders) {
        held.push_back(Number(static_cast<int64_t>(node.held_by.size() - kHolders)) + " more");
        break;
      }
      held.push_back(holder.name + " (" + Number(holder.gpus) + ")");
    }
    std::string remarks = Joined(held, ", ");
    if (!node.unfit.empty()) remarks += (remarks.empty() ? "" : "; ") + ("unfit: " + node.unfit);
    if (!node.oddity.empty()) remarks += (remarks.empty() ? "" : "; ") + ("odd: " + node.oddity);
    table.Row({node.name, node.product.empty() ? "-" : node.product, Number(node.usable), Number(node.used),
               Number(node.free), node.path.empty() ? "-" : Joined(node.path, "/"), remarks});
  }
  return table.Text({0, 1, 5, 6});
}

std::string Remark(const QueueView& entry) {
  std::string text = entry.why;
  if (entry.reserved > 0) text += (text.empty() ? "" : "; ") + Plural(entry.reserved, "free GPU") + " kept for it";
  if (!entry.victims.empty()) text += (text.empty() ? "" : "; ") + ("stops for it: " + Joined(entry.victims, ", "));
  return text;
}

std::string QueueText(const TopView& view, const TopShown& shown) {
  const bool all = shown.wide || shown.queue;
  const size_t count = all ? view.queue.size() : std::min(view.queue.size(), kQueueLines);
  Table table({"#", "JOB", "PRIORITY", "ASKS", "WAITS", "STARTS"});
  for (size_t i = 0; i < count; ++i) {
    const QueueView& entry = view.queue[i];
    const std::string start = entry.expected_start ? "in " + About(*entry.expected_start - view.now) : "-";
    table.Row({std::to_string(entry.position), entry.job, Number(entry.priority),
               Number(entry.gpus) + (entry.product.empty() ? "" : " " + entry.product), Age(view.now - entry.since),
               start});
  }
  // What a row waits for does not fit beside it.
  const std::string rows = table.Text({1, 3, 4, 5});
  std::string text;
  size_t at = 0;
  for (size_t line = 0; at < rows.size(); ++line) {
    const size_t end = rows.find('\n', at) + 1;
    text += rows.substr(at, end - at);
    at = end;
    if (line == 0) continue;
    const std::string remark = Remark(view.queue[line - 1]);
    if (!remark.empty()) text += Wrapped(remark, "     ", "     ", shown.wide ? std::string::npos : 118);
  }
  if (count < view.queue.size()) {
    text += "and " + Plural(static_cast<int64_t>(view.queue.size() - count), "job") + " more: --queue shows all\n";
  }
  return text;
}

}  // namespace

std::string TopText(const TopView& view, const TopShown& shown) {
  const bool overview = !shown.nodes && !shown.queue;
  std::vector<std::string> parts;
  if (overview || shown.nodes) parts.push_back(Summary(view));
  if (overview && !view.products.empty()) parts.push_back(ProductsText(view));
  if (overview && !view.domains.empty()) parts.push_back(DomainLines(view.domains, shown.wide).Text());
  if (shown.nodes && !view.nodes.empty()) parts.push_back(NodesText(view, shown.wide));
  if ((overview || shown.queue) && !view.queue.empty()) parts.push_back(QueueText(view, shown));
  if (shown.queue && view.queue.empty()) parts.emplace_back("no job waits\n");
  std::string notes;
  for (const std::string& note : view.notes) notes += Wrapped(note, "note: ", "      ");
  if (!notes.empty()) parts.push_back(notes);
  return Joined(parts, "\n");
}

}  // namespace trainyard::cli
