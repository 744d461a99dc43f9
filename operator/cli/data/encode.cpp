#include "operator/cli/data/encode.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "trainer/tokenizer/utf8.h"

namespace trainyard::cli {
namespace {

using nlohmann::json;
using tokenizer::Message;

tl::unexpected<Error> Invalid(std::string message) { return Fail(ErrorCode::kInvalidArgument, std::move(message)); }

Result<json> ParseObject(std::string_view line) {
  try {
    json value = json::parse(line);
    if (value.is_object()) return value;
  } catch (const json::parse_error& error) {
    return Invalid("broken JSON at byte " + std::to_string(error.byte) + " of the line");
  } catch (const json::out_of_range&) {
    return Invalid("broken JSON: a number that is too large");
  }
  return Invalid("is no JSON object");
}

Result<const json*> FieldOf(const json& object, const std::string& field) {
  const auto found = object.find(field);
  if (found != object.end()) return &*found;
  std::string names;
  for (const auto& [name, value] : object.items()) {
    names += (names.empty() ? "" : ", ") + tokenizer::Brief(name);
    if (names.size() > 100) break;
  }
  return Invalid("has no field '" + field + "'; it has: " + names + "; say with --field which one is meant");
}

// A text, or a list of parts {"type": "text", "text": a text}.
Result<std::string> ContentOf(const json& message, const std::string& where) {
  const auto found = message.find("content");
  if (found == message.end()) return Invalid(where + " has no content");
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) return Invalid(where + ": its content is no text");
  std::string text;
  for (const json& part : *found) {
    if (!part.is_object() || part.value("type", json()) != "text" || !part.contains("text") ||
        !part["text"].is_string()) {
      return Invalid(where + ": its content has a part that is no text");
    }
    text += part["text"].get<std::string>();
  }
  return text;
}

Result<Message> MessageOf(const json& message, size_t index) {
  const std::string where = "message " + std::to_string(index + 1);
  if (!message.is_object() || !message.contains("role") || !message["role"].is_string()) {
    return Invalid(where + " is no object with a role");
  }
  for (const char* key : {"tool_calls", "function_call"}) {
    if (message.contains(key) && !message[key].is_null() && !message[key].empty()) {
      return Invalid(where + " has " + key + ", which these templates cannot say");
    }
  }
  Result<std::string> content = ContentOf(message, where);
  if (!content) return Fail(content.error());
  Message out{message["role"].get<std::string>(), std::move(*content), ""};
  const auto reasoning = message.find("reasoning_content");
  if (reasoning != message.end() && reasoning->is_string()) out.reasoning = reasoning->get<std::string>();
  return out;
}

class BlockEncoder {
 public:
  BlockEncoder(const Recipe& recipe, const Block& block) : recipe_(recipe), block_(block) {
    out_.file = block.file;
    out_.bytes = static_cast<int64_t>(block.text.size());
  }

  Result<EncodedBlock> Run() {
    if (recipe_.format == InputFormat::kText) {
      if (Status status = Text(); !status) return Fail(Placed(status.error(), block_.line));
      return std::move(out_);
    }
    int64_t line = block_.line;
    for (std::string_view rest = block_.text; !rest.empty(); ++line) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      if (Status status = Line(rest.substr(0, end), line); !status) return Fail(Placed(status.error(), line));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return std::move(out_);
  }

 private:
  Error Placed(const Error& error, int64_t line) const {
    return error.Wrap(recipe_.paths[block_.file] + ":" + std::to_string(line));
  }

  Status Text() {
    auto ids = recipe_.tokenizer->Encode(block_.text);
    if (!ids) return Fail(ids.error().Wrap("the text from this line on"));
    Add(block_.line, *ids, block_.begins, block_.ends);
    return {};
  }

  Status Line(std::string_view text, int64_t line) {
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) return {};
    const Result<json> object = ParseObject(text);
    if (!object) return Fail(object.error());
    const Result<const json*> field = FieldOf(*object, recipe_.field);
    if (!field) return Fail(field.error());
    return recipe_.format == InputFormat::kChat ? Chat(**field, line) : Document(**field, line);
  }

  Status Document(const json& field, int64_t line) {
    if (!field.is_string()) return Invalid("field '" + recipe_.field + "' is no text");
    const auto& text = field.get_ref<const std::string&>();
    if (text.empty()) {
      ++out_.empty;
      return {};
    }
    auto ids = recipe_.tokenizer->Encode(text);
    if (!ids) return Fail(ids.error());
    Add(line, *ids, true, true);
    return {};
  }

  Status Chat(const json& field, int64_t line) {
    if (!field.is_array() || field.empty()) return Invalid("field '" + recipe_.field + "' is no list of messages");
    std::vector<Message> messages;
    for (const json& entry : field) {
      Result<Message> message = MessageOf(entry, messages.size());
      if (!message) return Fail(message.error());
      messages.push_back(std::move(*message));
    }
    const auto chat = tokenizer::RenderChat(recipe_.style, messages, recipe_.tokenizer->special());
    if (!chat) return Fail(chat.error());
    const auto tokens = recipe_.tokenizer->EncodeWithSpans(chat->text);
    if (!tokens) return Fail(tokens.error());
    CountAnswers(tokens->spans, chat->answers);
    Add(line, tokens->ids, true, true);
    return {};
  }

  // A token counts where a part of it lies in an answer. One that stands for nothing (white space that its tokenizer
  // does not place) counts where it begins in one.
  void CountAnswers(const std::vector<tokenizer::Span>& spans, const std::vector<tokenizer::Span>& answers) {
    if (recipe_.first) out_.counts.push_back(0);
    auto answer = answers.begin();
    for (const tokenizer::Span& span : spans) {
      while (answer != answers.end() && answer->end <= span.begin) ++answer;
      const size_t end = std::max(span.end, span.begin + 1);
      out_.counts.push_back(answer != answers.end() && end > answer->begin ? 1 : 0);
    }
    if (recipe_.separator) out_.counts.push_back(0);
  }

  void Add(int64_t line, const std::vector<uint32_t>& ids, bool begins, bool ends) {
    EncodedDocument document{line, out_.ids.size(), 0, ends};
    if (begins && recipe_.first) out_.ids.push_back(*recipe_.first);
    out_.ids.insert(out_.ids.end(), ids.begin(), ids.end());
    if (ends && recipe_.separator) out_.ids.push_back(*recipe_.separator);
    document.size = out_.ids.size() - document.begin;
    out_.documents.push_back(document);
  }

  const Recipe& recipe_;
  const Block& block_;
  EncodedBlock out_;
};

}  // namespace

Result<EncodedBlock> EncodeBlock(const Recipe& recipe, const Block& block) { return BlockEncoder(recipe, block).Run(); }

}  // namespace trainyard::cli
