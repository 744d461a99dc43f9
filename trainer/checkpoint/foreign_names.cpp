#include "trainer/checkpoint/foreign_names.h"

#include <algorithm>
#include <string_view>

#include "trainer/checkpoint/huggingface.h"

namespace trainyard::checkpoint {
namespace {

constexpr std::string_view kGpt2Prefix = "transformer.";

// What stands before `stem` in the names; only "" where that is one of them.
std::vector<std::string> PrefixesOf(const std::string& stem, const std::vector<std::string>& names) {
  if (std::find(names.begin(), names.end(), stem) != names.end()) return {""};
  std::vector<std::string> prefixes;
  for (const std::string& name : names) {
    if (name.ends_with("." + stem)) prefixes.push_back(name.substr(0, name.size() - stem.size()));
  }
  return prefixes;
}

}  // namespace

Result<ForeignNames> ForeignNames::Learn(const ModelDescription& model, const std::vector<std::string>& names) {
  const auto bad = [](const std::string& what) { return Fail(ErrorCode::kInvalidArgument, what); };
  const std::string first = TensorsOf(model).front().name;
  std::vector<std::string> stems = {first};
  if (model.family == ModelFamily::kGpt2) stems.push_back(first.substr(kGpt2Prefix.size()));
  for (const std::string& stem : stems) {
    std::vector<std::string> prefixes = PrefixesOf(stem, names);
    if (prefixes.empty()) continue;
    if (prefixes.size() > 1) {
      return bad("the source has several models: " + prefixes[0] + stem + ", " + prefixes[1] + stem);
    }
    ForeignNames out;
    out.shortened_ = stem != first;
    out.prefix_ = prefixes[0];
    return out;
  }
  return bad("there is no tensor " + first + " in the source: it is of another model than config.json");
}

std::string ForeignNames::Of(const std::string& ours) const {
  const bool shortened = shortened_ && ours.starts_with(kGpt2Prefix);
  return prefix_ + (shortened ? ours.substr(kGpt2Prefix.size()) : ours);
}

std::string ForeignNames::Whole(const std::string& foreign) const {
  if (!foreign.starts_with(prefix_)) return "";
  return (shortened_ ? std::string(kGpt2Prefix) : "") + foreign.substr(prefix_.size());
}

}  // namespace trainyard::checkpoint
