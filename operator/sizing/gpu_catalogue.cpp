#include "operator/sizing/gpu_catalogue.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <numeric>
#include <set>
#include <utility>

#include "operator/api/names.h"
#include "operator/api/yaml.h"
#include "operator/sizing/gpu_catalogue_rows.h"
#include "operator/sizing/gpu_catalogue_text.h"

namespace trainyard::sizing {
namespace {

using nlohmann::json;

constexpr size_t kMostProducts = 1000;
constexpr size_t kMostCurrencyLetters = 16;

tl::unexpected<Error> Bad(const std::string& what) { return Fail(ErrorCode::kInvalidArgument, what); }

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// Levenshtein distance.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replace});
    }
  }
  return row.back();
}

size_t CommonPrefix(std::string_view a, std::string_view b) {
  size_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
  return n;
}

GpuProduct SimulatedProduct() {
  GpuProduct p;
  p.name = kSimulatedProduct;
  p.aliases = {kSimulatedLabelValue};
  p.memory_mib = 2048;
  p.pcie_generation = 0;
  p.pcie_gbps = 0;
  p.nic_gbps = 0;
  p.link = Link::kProcess;
  return p;
}

// What the keys beside the products say.
struct Head {
  bool replace = false;
  std::optional<std::string> currency;
  const json* products = nullptr;
};

Result<Head> ReadHead(const json& document) {
  if (!document.is_object()) return Bad("not a map with the key 'products'");
  Head head;
  for (const auto& [key, value] : document.items()) {
    if (key == "products") {
      if (!value.is_array()) return Bad("products: not a list");
      head.products = &value;
    } else if (key == "replace") {
      if (!value.is_boolean()) return Bad("replace: neither true nor false");
      head.replace = value.get<bool>();
    } else if (key == "currency") {
      if (!value.is_string() || value.get_ref<const std::string&>().size() > kMostCurrencyLetters) {
        return Bad("currency: not a text of at most " + std::to_string(kMostCurrencyLetters) + " letters");
      }
      head.currency = value.get<std::string>();
    } else {
      return Bad("'" + api::Printable(key) + "' is no key of a catalogue; the keys are currency, replace and products");
    }
  }
  if (head.products == nullptr) return Bad("the key 'products' is missing");
  if (head.products->size() > kMostProducts) return Bad("more than " + std::to_string(kMostProducts) + " products");
  if (head.replace && head.products->empty()) return Bad("replace: true without a product leaves nothing to plan with");
  return head;
}

}  // namespace

const std::shared_ptr<const Catalogue>& Catalogue::Default() {
  // A file that does not read ends the program here; the tests of this room keep it from being committed.
  static const auto kDefault =
      std::make_shared<const Catalogue>(FromYaml(kGpuCatalogueYaml, "gpu_catalogue.yaml").value());
  return kDefault;
}

Result<Catalogue> Catalogue::FromYaml(std::string_view text, std::string_view source_name) {
  auto documents = api::LoadYaml(text, source_name);
  if (!documents) return Fail(documents.error());
  if (documents->size() != 1) {
    return Bad(std::string(source_name) + ": " + std::to_string(documents->size()) +
               " YAML documents; a GPU catalogue is one");
  }
  auto catalogue = FromJson(documents->front());
  if (!catalogue) return Fail(catalogue.error().Wrap(source_name));
  return catalogue;
}

Result<Catalogue> Catalogue::FromJson(const json& document) {
  const auto head = ReadHead(document);
  if (!head) return Fail(head.error());
  std::vector<GpuProduct> products;
  const Catalogue* known = head->replace ? nullptr : Default().get();
  if (known != nullptr) {
    products = known->products_;
    products.pop_back();  // the simulated one
  }
  std::set<std::string> seen;
  for (size_t i = 0; i < head->products->size(); ++i) {
    const json& row = (*head->products)[i];
    const std::string place = "products[" + std::to_string(i) + "]";
    const auto name = RowName(row);
    if (!name) return Fail(name.error().Wrap(place));
    const GpuProduct* old = known != nullptr ? known->Find(*name) : nullptr;
    const std::string named = place + " (" + *name + ")";
    if (Lower(*name) == Lower(kSimulatedProduct) || (old != nullptr && old->Simulated())) {
      return Bad(named + ": the simulated product cannot be changed");
    }
    if (!seen.insert(Lower(old != nullptr ? old->name : *name)).second) {
      return Bad(named + ": an earlier row is about the same product");
    }
    if (old == nullptr) products.push_back({.name = *name});
    GpuProduct& product = old != nullptr ? products[static_cast<size_t>(old - known->products_.data())]  //
                                         : products.back();
    if (Status status = ApplyRow(row, old == nullptr, product); !status) return Fail(status.error().Wrap(named));
  }
  return Make(std::move(products), head->currency.value_or(""));
}

Result<Catalogue> Catalogue::Make(std::vector<GpuProduct> products, std::string currency) {
  Catalogue catalogue;
  catalogue.products_ = std::move(products);
  catalogue.products_.push_back(SimulatedProduct());
  catalogue.currency_ = std::move(currency);
  for (size_t i = 0; i < catalogue.products_.size(); ++i) {
    GpuProduct& product = catalogue.products_[i];
    if (product.price_per_hour) product.currency = catalogue.currency_;
    std::vector<std::string> names = product.aliases;
    names.push_back(product.name);
    for (const std::string& name : names) {
      const auto [at, added] = catalogue.index_.emplace(Lower(name), i);
      if (added || at->second == i) continue;
      return Bad("products: '" + name + "' names both " + catalogue.products_[at->second].name + " and " +
                 product.name);
    }
  }
  return catalogue;
}

const GpuProduct* Catalogue::Find(std::string_view name) const {
  const auto at = index_.find(Lower(name));
  return at == index_.end() ? nullptr : &products_[at->second];
}

std::vector<std::string> Catalogue::Nearest(std::string_view name, size_t limit) const {
  const std::string wanted = Lower(name.substr(0, 64));
  // Names that begin alike come first (H100 for "H100-SXM4"), then those that differ in the fewest letters.
  std::vector<std::pair<std::ptrdiff_t, std::string>> ranked;
  for (const GpuProduct& p : products_) {
    if (p.Simulated()) continue;
    const std::string own = Lower(p.name);
    ranked.emplace_back(
        static_cast<std::ptrdiff_t>(Distance(wanted, own)) - 2 * static_cast<std::ptrdiff_t>(CommonPrefix(wanted, own)),
        p.name);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> out;
  for (size_t i = 0; i < ranked.size() && i < limit; ++i) out.push_back(ranked[i].second);
  return out;
}

Result<const GpuProduct*> Catalogue::Require(std::string_view name) const {
  if (const GpuProduct* product = Find(name)) return product;
  std::string near;
  for (const std::string& candidate : Nearest(name, 3)) near += (near.empty() ? "" : ", ") + candidate;
  return Bad("'" + api::Printable(name) + "' is no known GPU product; the nearest names are " + near);
}

std::vector<LinkRate> LinksOf(const GpuProduct& product) {
  std::vector<LinkRate> links;
  if (product.Simulated()) return links;
  if (product.nvlink_gbps > 0) {
    std::string name = product.link == Link::kXgmi ? "Infinity Fabric" : "NVLink";
    if (product.nvlink_generation > 0) name += " " + std::to_string(product.nvlink_generation);
    if (!product.nvlink_form.empty()) name += ", " + product.nvlink_form;
    links.push_back({name, product.nvlink_gbps, product.nvlink_gbps / 2});
  }
  links.push_back(
      {"PCIe " + std::to_string(product.pcie_generation) + " x16", 2 * product.pcie_gbps, product.pcie_gbps});
  links.push_back({"network", 2 * product.nic_gbps, product.nic_gbps});
  return links;
}

}  // namespace trainyard::sizing
