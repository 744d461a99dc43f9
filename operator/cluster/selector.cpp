#include "operator/cluster/selector.h"

#include <algorithm>
#include <cctype>

namespace trainyard::cluster {
namespace {

std::string_view Trim(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

// Splits at commas outside parentheses.
std::vector<std::string_view> SplitTerms(std::string_view text) {
  std::vector<std::string_view> terms;
  int depth = 0;
  size_t start = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && depth == 0)) {
      terms.push_back(Trim(text.substr(start, i - start)));
      start = i + 1;
    } else if (text[i] == '(') {
      ++depth;
    } else if (text[i] == ')') {
      --depth;
    }
  }
  return terms;
}

bool IsLabelText(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == '/'; });
}

}  // namespace

Result<Selector> Selector::Parse(std::string_view text) {
  Selector selector;
  if (Trim(text).empty()) return selector;
  for (std::string_view term : SplitTerms(text)) {
    const auto bad = [&] {
      return Fail(ErrorCode::kInvalidArgument, "label selector: cannot read \"" + std::string(term) + "\" in \"" +
                                                   std::string(text) + "\": write a=b, a!=b, a in (b,c), a or !a");
    };
    Requirement requirement{"", Op::kExists, {}};
    if (const size_t open = term.find('('); open != std::string_view::npos) {
      if (term.back() != ')') return bad();
      const std::string_view head = Trim(term.substr(0, open));
      const size_t space = head.find_last_of(" \t");
      if (space == std::string_view::npos) return bad();
      const std::string_view word = head.substr(space + 1);
      if (word != "in" && word != "notin") return bad();
      requirement.op = word == "in" ? Op::kIn : Op::kNotIn;
      requirement.key = Trim(head.substr(0, space));
      for (std::string_view value : SplitTerms(term.substr(open + 1, term.size() - open - 2))) {
        requirement.values.emplace_back(value);
      }
    } else if (const size_t equals = term.find('='); equals != std::string_view::npos) {
      const bool negated = equals > 0 && term[equals - 1] == '!';
      const bool doubled = equals + 1 < term.size() && term[equals + 1] == '=';
      if (negated && doubled) return bad();
      requirement.op = negated ? Op::kNotIn : Op::kIn;
      requirement.key = Trim(term.substr(0, negated ? equals - 1 : equals));
      requirement.values.emplace_back(Trim(term.substr(equals + (doubled ? 2 : 1))));
    } else if (term.starts_with('!')) {
      requirement.op = Op::kNotExists;
      requirement.key = Trim(term.substr(1));
    } else {
      requirement.key = term;
    }
    if (requirement.key.empty() || !IsLabelText(requirement.key)) return bad();
    for (const std::string& value : requirement.values) {
      if (!IsLabelText(value)) return bad();
    }
    selector.requirements_.push_back(std::move(requirement));
  }
  return selector;
}

bool Selector::Matches(const nlohmann::json& object) const {
  if (requirements_.empty()) return true;
  static const nlohmann::json kNone = nlohmann::json::object();
  const nlohmann::json* labels = &kNone;
  if (object.is_object()) {
    if (const auto metadata = object.find("metadata"); metadata != object.end() && metadata->is_object()) {
      if (const auto found = metadata->find("labels"); found != metadata->end() && found->is_object()) labels = &*found;
    }
  }
  return std::all_of(requirements_.begin(), requirements_.end(), [&](const Requirement& requirement) {
    const auto found = labels->find(requirement.key);
    const bool exists = found != labels->end() && found->is_string();
    const auto listed = [&] {
      return exists && std::find(requirement.values.begin(), requirement.values.end(),
                                 found->get_ref<const std::string&>()) != requirement.values.end();
    };
    switch (requirement.op) {
      case Op::kExists:
        return exists;
      case Op::kNotExists:
        return !exists;
      case Op::kIn:
        return listed();
      case Op::kNotIn:
        return !listed();
    }
    return false;
  });
}

}  // namespace trainyard::cluster
