#include "operator/sizing/gpu_catalogue_rows.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>
#include <utility>

#include "operator/api/names.h"

namespace trainyard::sizing {
namespace {

using nlohmann::json;

constexpr size_t kMostAliases = 100;
constexpr size_t kMostFormLetters = 60;

tl::unexpected<Error> Bad(const std::string& what) { return Fail(ErrorCode::kInvalidArgument, what); }

// Short enough for one line, whatever the file says.
std::string Shown(const json& value) {
  return api::Printable(value.dump(-1, ' ', false, json::error_handler_t::replace));
}

std::string Plain(double value) { return json(value).dump(); }

// A number field: `least` itself is allowed only where it says so.
struct NumberField {
  const char* name;
  void (*set)(GpuProduct& product, double value);
  double least;
  bool least_allowed;
  double most;
};
constexpr NumberField kNumbers[] = {
    {"bf16TFLOPS", [](GpuProduct& p, double v) { p.bf16_tflops = v; }, 0, false, 1e6},
    {"memoryGBps", [](GpuProduct& p, double v) { p.hbm_gbps = v; }, 0, true, 1e6},
    {"nvlinkGBps", [](GpuProduct& p, double v) { p.nvlink_gbps = v; }, 0, true, 1e6},
    {"pcieGBps", [](GpuProduct& p, double v) { p.pcie_gbps = v; }, 0, false, 1e6},
    {"networkGBps", [](GpuProduct& p, double v) { p.nic_gbps = v; }, 0, false, 1e6},
    {"mfu", [](GpuProduct& p, double v) { p.mfu = v; }, 0, false, 1},
    {"relativeSpeed", [](GpuProduct& p, double v) { p.relative_speed = v; }, 0, false, 1000},
    {"driverReserve", [](GpuProduct& p, double v) { p.driver_reserve = v; }, 0, true, 0.9},
    {"pricePerHour", [](GpuProduct& p, double v) { p.price_per_hour = v; }, 0, true, 1e9},
};

struct WholeField {
  const char* name;
  int64_t GpuProduct::* member;
  int64_t least;
  int64_t most;
};
constexpr WholeField kWholes[] = {
    {"memoryMiB", &GpuProduct::memory_mib, 1, int64_t{1} << 30},  // a PiB
    {"nvlinkGeneration", &GpuProduct::nvlink_generation, 0, 100},
    {"pcieGeneration", &GpuProduct::pcie_generation, 1, 100},
    {"gpusPerNode", &GpuProduct::gpus_per_node, 1, 1024},
};

// kProcess is no word of a file.
constexpr std::pair<const char*, Link> kLinks[] = {
    {"PCIe", Link::kPcie},         {"PCIeNoPeer", Link::kPcieNoPeer}, {"NVLinkBridge", Link::kNvlinkBridge},
    {"NVSwitch", Link::kNvswitch}, {"NVLinkRack", Link::kNvlinkRack}, {"InfinityFabric", Link::kXgmi},
};

std::string LinkWords() {
  std::string words;
  for (const auto& [name, link] : kLinks) words += (words.empty() ? "" : ", ") + std::string(name);
  return words;
}

std::string FieldWords() {
  std::string words = "name, aliases, link, nvlinkForm";
  for (const WholeField& f : kWholes) words += std::string(", ") + f.name;
  for (const NumberField& f : kNumbers) words += std::string(", ") + f.name;
  return words;
}

// Names are matched against label values, so they are written as one.
bool IsLabelValue(const json& value) {
  if (!value.is_string()) return false;
  const auto& text = value.get_ref<const std::string&>();
  const auto alnum = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  return !text.empty() && text.size() <= 63 && alnum(text.front()) && alnum(text.back()) &&
         std::all_of(text.begin(), text.end(), [&](char c) { return alnum(c) || c == '-' || c == '_' || c == '.'; });
}

constexpr const char* kLabelRule = "is not 1 to 63 letters, digits, '-', '_' and '.', as the value of a label";

Status AddAliases(const json& value, GpuProduct& product) {
  if (!value.is_array()) return Bad("aliases: " + Shown(value) + " is not a list");
  for (const json& alias : value) {
    if (!IsLabelValue(alias)) return Bad("aliases: " + Shown(alias) + " " + kLabelRule);
    const auto& text = alias.get_ref<const std::string&>();
    if (std::find(product.aliases.begin(), product.aliases.end(), text) == product.aliases.end()) {
      product.aliases.push_back(text);
    }
  }
  if (product.aliases.size() > kMostAliases) return Bad("aliases: more than " + std::to_string(kMostAliases));
  return {};
}

Status ApplyText(const std::string& field, const json& value, GpuProduct& product) {
  if (field == "aliases") return AddAliases(value, product);
  if (field == "nvlinkForm") {
    if (!value.is_string() || value.get_ref<const std::string&>().size() > kMostFormLetters) {
      return Bad("nvlinkForm: " + Shown(value) + " is not a text of at most " + std::to_string(kMostFormLetters) +
                 " letters");
    }
    product.nvlink_form = value.get<std::string>();
    return {};
  }
  if (field == "link") {
    const auto* known = std::find_if(std::begin(kLinks), std::end(kLinks),
                                     [&](const auto& l) { return value.is_string() && value == l.first; });
    if (known == std::end(kLinks)) return Bad("link: " + Shown(value) + " is none of " + LinkWords());
    product.link = known->second;
    return {};
  }
  return Bad(Shown(field) + " is no field of a product; the fields are " + FieldWords());
}

Status ApplyField(const std::string& field, const json& value, GpuProduct& product) {
  if (field == "name") return {};  // RowName has read it
  for (const WholeField& f : kWholes) {
    if (field != f.name) continue;
    // As double first: a number beyond 63 bits would come out as another one.
    if (!value.is_number_integer() || value.get<double>() < static_cast<double>(f.least) ||
        value.get<double>() > static_cast<double>(f.most)) {
      return Bad(field + ": " + Shown(value) + " is not a whole number from " + std::to_string(f.least) + " to " +
                 std::to_string(f.most));
    }
    product.*f.member = value.get<int64_t>();
    return {};
  }
  for (const NumberField& f : kNumbers) {
    if (field != f.name) continue;
    const double number = value.is_number() ? value.get<double>() : std::nan("");
    if (!std::isfinite(number) || number > f.most || (f.least_allowed ? number < f.least : number <= f.least)) {
      return Bad(field + ": " + Shown(value) + " is not a number " + (f.least_allowed ? "from " : "above ") +
                 Plain(f.least) + (f.least_allowed ? " to " : " and up to ") + Plain(f.most));
    }
    f.set(product, number);
    return {};
  }
  return ApplyText(field, value, product);
}

}  // namespace

std::string_view LinkName(Link link) {
  for (const auto& [name, known] : kLinks) {
    if (known == link) return name;
  }
  return "processes";
}

Result<std::string> RowName(const json& row) {
  if (!row.is_object()) return Bad(Shown(row) + " is not a map with the fields of a product");
  const auto name = row.find("name");
  if (name == row.end()) return Bad("it has no name");
  if (!IsLabelValue(*name)) return Bad("name: " + Shown(*name) + " " + kLabelRule);
  return name->get<std::string>();
}

Status ApplyRow(const json& row, bool is_new, GpuProduct& product) {
  for (const auto& [field, value] : row.items()) {
    if (Status status = ApplyField(field, value, product); !status) return status;
  }
  if (is_new && (product.memory_mib == 0 || product.bf16_tflops == 0)) {
    return Bad("a new product needs memoryMiB and bf16TFLOPS");
  }
  const bool plain = product.link == Link::kPcie || product.link == Link::kPcieNoPeer;
  if (plain && product.nvlink_gbps > 0) {
    return Bad("nvlinkGBps: a product whose link is " + std::string(LinkName(product.link)) +
               " has none; give the link (" + LinkWords() + "), or 0");
  }
  if (!plain && product.nvlink_gbps == 0) {
    return Bad("link: " + std::string(LinkName(product.link)) + " needs its nvlinkGBps, both directions together");
  }
  return {};
}

}  // namespace trainyard::sizing
