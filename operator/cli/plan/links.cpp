#include "operator/cli/plan/render.h"
#include "operator/cli/plan/text_table.h"

namespace trainyard::cli {
namespace {

struct LinkTable {
  Table table;
  std::vector<size_t> left;
};

std::string Rate(double gbps) {
  if (gbps <= 0) return "-";
  std::string text = Fixed(gbps, 2);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

LinkTable LinksOf(const sizing::Catalogue& catalogue) {
  Table table({"PRODUCT", "LINK", "BOTH DIRECTIONS, GB/s", "PER DIRECTION, GB/s"});
  for (const sizing::GpuProduct& product : catalogue.products()) {
    if (product.Simulated()) continue;
    for (const auto& link : sizing::LinksOf(product)) {
      table.Row({product.name, link.name, Rate(link.both_directions), Rate(link.per_direction)});
    }
  }
  return {std::move(table), {0, 1}};
}

}  // namespace

std::string LinksToText(const sizing::Catalogue& catalogue) {
  const LinkTable links = LinksOf(catalogue);
  return links.table.Text(links.left) +
         "\nVendors quote NVLink both directions together and PCIe per direction: never divide one by the other.\n";
}

std::string LinksToMarkdown(const sizing::Catalogue& catalogue) {
  const LinkTable links = LinksOf(catalogue);
  return links.table.Markdown(links.left);
}

}  // namespace trainyard::cli
