#include "operator/api/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <cctype>
#include <charconv>
#include <set>
#include <sstream>

#include "operator/api/names.h"

namespace trainyard::api {
namespace {

using nlohmann::json;

// Far above any real manifest, far below what a chain of aliases can unfold to.
constexpr int kMaxNodes = 100'000;
constexpr int kMaxDepth = 100;
constexpr size_t kMaxBytes = 4u << 20;

// Thrown inside this file only; LoadYaml turns it into an Error.
struct Problem {
  YAML::Mark mark;
  std::string message;
};

// yaml-cpp 0.7 takes a character that can begin nothing (a ',' at the start of a line) for an empty document, and for
// another, for ever. This reader of events notices that it does not move.
class StuckParser : public YAML::EventHandler {
 public:
  static void Check(const std::string& text) {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    StuckParser events;
    while (parser.HandleNextDocument(events)) {
    }
  }
  void OnDocumentStart(const YAML::Mark& mark) override {
    if (mark.pos == last_) throw Problem{mark, "unexpected character: nothing can begin here"};
    last_ = mark.pos;
    Count(mark);
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { Count(mark); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { Count(mark); }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t, const std::string&) override {
    Count(mark);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    Count(mark);
  }
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    Count(mark);
  }
  void OnMapEnd() override {}

 private:
  // What is too large is refused later and better; this only ends what would not end.
  void Count(const YAML::Mark& mark) {
    if (++events_ > 4 * kMaxNodes) throw Problem{mark, "does not come to an end"};
  }

  int last_ = -1;
  int events_ = 0;
};

size_t Digits(std::string_view& text) {
  size_t n = 0;
  while (n < text.size() && text[n] >= '0' && text[n] <= '9') ++n;
  text.remove_prefix(n);
  return n;
}

void Sign(std::string_view& text) {
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
}

// [-+]?[0-9]+
bool IsInteger(std::string_view text) {
  Sign(text);
  return Digits(text) > 0 && text.empty();
}

// [-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?
bool IsFloat(std::string_view text) {
  Sign(text);
  size_t digits = Digits(text);
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    digits += Digits(text);
  }
  if (digits == 0) return false;
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(1);
    Sign(text);
    return IsInteger(text) && text[0] != '-' && text[0] != '+';
  }
  return text.empty();
}

bool IsNotFinite(std::string_view text) {
  if (text == ".nan" || text == ".NaN" || text == ".NAN") return true;
  Sign(text);
  return text == ".inf" || text == ".Inf" || text == ".INF";
}

// Hexadecimal and octal of YAML 1.2: 0x1F, 0o17.
bool IsOtherBase(std::string_view text) {
  Sign(text);
  if (!text.starts_with("0x") && !text.starts_with("0o")) return false;
  return text.size() > 2 && text.find_first_not_of("0123456789abcdefABCDEF", 2) == std::string_view::npos;
}

json Integer(const std::string& text, const YAML::Mark& mark) {
  bool plus = text[0] == '+';
  const char* begin = text.data() + (plus ? 1 : 0);
  const char* end = text.data() + text.size();
  const char* digits = begin + (*begin == '-' ? 1 : 0);
  if (*digits == '0' && digits + 1 != end) {
    throw Problem{
        mark, "'" + Printable(text) + "' has a leading zero, which readers of YAML disagree on; drop it or use quotes"};
  }
  int64_t value = 0;
  auto [rest, error] = std::from_chars(begin, end, value);
  if (error == std::errc() && rest == end) return value;
  uint64_t wide = 0;
  auto [wide_rest, wide_error] = std::from_chars(begin, end, wide);
  if (wide_error == std::errc() && wide_rest == end) return wide;
  throw Problem{mark, "number " + Printable(text) + " does not fit into 64 bits"};
}

// A plain scalar by the core schema of YAML 1.2.
json Plain(const std::string& text, const YAML::Mark& mark) {
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  if (IsInteger(text)) return Integer(text, mark);
  if (IsFloat(text)) {
    const char* begin = text.data() + (text[0] == '+' ? 1 : 0);
    double value = 0;
    auto [rest, error] = std::from_chars(begin, text.data() + text.size(), value);
    if (error != std::errc()) throw Problem{mark, "number " + Printable(text) + " does not fit into a double"};
    return value;
  }
  if (IsNotFinite(text)) {
    throw Problem{mark, "'" + Printable(text) + "' is not a finite number"};
  }
  if (IsOtherBase(text)) {
    throw Problem{mark, "'" + Printable(text) +
                            "' is not decimal; readers of YAML disagree on it, write it in decimal or in quotes"};
  }
  return text;
}

class Converter {
 public:
  json Convert(const YAML::Node& node, int depth = 0) {
    if (depth > kMaxDepth) throw Problem{node.Mark(), "nested more than " + std::to_string(kMaxDepth) + " levels deep"};
    if (++nodes_ > kMaxNodes) {
      throw Problem{node.Mark(), "more than " + std::to_string(kMaxNodes) + " values, aliases unfolded"};
    }
    switch (node.Type()) {
      case YAML::NodeType::Sequence: {
        json list = json::array();
        for (const auto& item : node) list.push_back(Convert(item, depth + 1));
        return list;
      }
      case YAML::NodeType::Map:
        return Map(node, depth);
      case YAML::NodeType::Scalar:
        // "?" marks a plain scalar; "!" a quoted or block one, whose text is the value.
        return node.Tag() == "?" || node.Tag().empty() ? Plain(node.Scalar(), node.Mark()) : Tagged(node);
      default:
        return nullptr;
    }
  }

 private:
  json Map(const YAML::Node& node, int depth) {
    json object = json::object();
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) throw Problem{entry.first.Mark(), "a key must be a plain or quoted string"};
      const std::string& key = entry.first.Scalar();
      if (key == "<<") throw Problem{entry.first.Mark(), "merge keys ('<<') are not supported; write the fields out"};
      if (object.contains(key)) throw Problem{entry.first.Mark(), "key '" + Printable(key) + "' occurs twice"};
      object[key] = Convert(entry.second, depth + 1);
    }
    return object;
  }

  static json Tagged(const YAML::Node& node) {
    const std::string& tag = node.Tag();
    if (tag == "!" || tag == "tag:yaml.org,2002:str") return node.Scalar();
    for (const char* core : {"int", "float", "bool", "null"}) {
      if (tag == std::string("tag:yaml.org,2002:") + core) return Plain(node.Scalar(), node.Mark());
    }
    throw Problem{node.Mark(), "tag '" + Printable(tag) + "' is not supported"};
  }

  int nodes_ = 0;
};

// Strings that hold other bytes could never be written as JSON again.
bool IsUtf8(std::string_view text) {
  try {
    json(std::string(text)).dump();
    return true;
  } catch (const json::type_error&) {
    return false;
  }
}

// The parser quotes single bytes of what it read: they may be a line break, or part of a character.
std::string OneLine(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = '?';
  }
  return text;
}

// ---- writing ---------------------------------------------------------------------------------------------------

// True where every reader of YAML 1.1 or 1.2 takes the plain text for this string.
bool IsSafePlain(const std::string& text) {
  static const std::set<std::string> kTaken = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"};
  if (text.empty() || text.size() > 200) return false;
  char before = ' ';
  for (const char& c : text) {
    bool letter = std::isalpha(static_cast<unsigned char>(c)) != 0;
    bool first_only = c == '/' || c == '_';
    bool later = std::isdigit(static_cast<unsigned char>(c)) != 0 ||
                 std::string_view("./@%+=-_").find(c) != std::string_view::npos;
    // Starts with a letter, '_' or '/'; single blanks between words only.
    bool good = &c == text.data() ? letter || first_only : letter || later || (c == ' ' && before != ' ');
    if (!good) return false;
    before = c;
  }
  if (before == ' ') return false;
  std::string lower;
  for (char c : text) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return !kTaken.contains(lower);
}

std::string ScalarText(const json& value) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    return IsSafePlain(text) ? text : value.dump(-1, ' ', false, json::error_handler_t::replace);
  }
  std::string text = value.dump();
  size_t exponent = text.find('e');
  // YAML 1.1 takes 1e-08 for a string.
  if (value.is_number_float() && exponent != std::string::npos && text.find('.') == std::string::npos) {
    text.insert(exponent, ".0");
  }
  return text;
}

void Emit(const json& value, int indent, std::string& out);

// What follows "key:" or "-".
void EmitMember(const json& value, int indent, bool in_list, std::string& out) {
  if (value.empty() && value.is_structured()) {
    out += value.is_array() ? " []\n" : " {}\n";
  } else if (!value.is_structured()) {
    out += " " + ScalarText(value) + "\n";
  } else if (in_list) {
    std::string inner;
    Emit(value, indent + 2, inner);
    out += " " + inner.substr(static_cast<size_t>(indent) + 2);
  } else {
    out += "\n";
    Emit(value, value.is_array() ? indent : indent + 2, out);
  }
}

void Emit(const json& value, int indent, std::string& out) {
  std::string margin(static_cast<size_t>(indent), ' ');
  if (value.is_array()) {
    for (const json& item : value) {
      out += margin + "-";
      EmitMember(item, indent, true, out);
    }
  } else {
    for (const auto& [key, item] : value.items()) {
      std::string text = ScalarText(key);
      // Readers give up on an unmarked key after 1,024 characters.
      out += margin + (text.size() < 1000 ? text + ":" : "? " + text + "\n" + margin + ":");
      EmitMember(item, indent, false, out);
    }
  }
}

}  // namespace

Result<std::vector<json>> LoadYaml(std::string_view text, std::string_view source_name) {
  std::string source(source_name);
  if (text.size() > kMaxBytes) {
    return Fail(ErrorCode::kInvalidArgument, source + ": is larger than " + std::to_string(kMaxBytes >> 20) + " MiB");
  }
  if (!IsUtf8(text)) return Fail(ErrorCode::kInvalidArgument, source + ": is not UTF-8 text");
  auto fail = [&](const YAML::Mark& mark, const std::string& message) {
    std::string where = source;
    if (!mark.is_null()) where += ":" + std::to_string(mark.line + 1) + ":" + std::to_string(mark.column + 1);
    return Fail(ErrorCode::kInvalidArgument, where + ": " + message);
  };
  try {
    StuckParser::Check(std::string(text));
    std::vector<json> documents;
    for (const YAML::Node& node : YAML::LoadAll(std::string(text))) {
      json document = Converter().Convert(node);
      if (!document.is_null()) documents.push_back(std::move(document));
    }
    return documents;
  } catch (const Problem& problem) {
    return fail(problem.mark, problem.message);
  } catch (const YAML::Exception& e) {
    return fail(e.mark, "not YAML: " + OneLine(e.msg));
  } catch (const std::exception& e) {
    return fail(YAML::Mark::null_mark(), "not YAML: " + OneLine(e.what()));
  }
}

std::string ToYaml(const json& value) {
  if (!value.is_structured()) return ScalarText(value) + "\n";
  if (value.empty()) return value.is_array() ? "[]\n" : "{}\n";
  std::string out;
  Emit(value, 0, out);
  return out;
}

}  // namespace trainyard::api
