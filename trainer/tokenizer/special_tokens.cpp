#include "trainer/tokenizer/special_tokens.h"

#include <nlohmann/json.hpp>

#include "operator/base/files.h"

namespace trainyard::tokenizer {
namespace {

using nlohmann::json;

// An empty object where there is no such file.
Result<json> ReadObject(const std::string& path) {
  const Result<std::string> text = ReadFile(path);
  if (!text) return text.error().code == ErrorCode::kNotFound ? Result<json>(json::object()) : Fail(text.error());
  json value = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!value.is_object()) return Fail(ErrorCode::kInvalidArgument, path + " is not a JSON object");
  return value;
}

// "eos_token": a name, {"content": a name, ...}, or null.
Status TakeToken(const json& object, const std::string& path, const char* key, std::string& name) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return {};
  const json& value = found->is_object() && found->contains("content") ? (*found)["content"] : *found;
  if (!value.is_string()) return Fail(ErrorCode::kInvalidArgument, path + ": " + key + " is not the name of a token");
  name = value.get<std::string>();
  return {};
}

// "chat_template": a text, or a list of {"name", "template"} of which the one named "default" counts.
Status TakeTemplate(const json& object, const std::string& path, SpecialTokens& special) {
  const auto found = object.find("chat_template");
  if (found == object.end() || found->is_null()) return {};
  const json* text = &*found;
  if (found->is_array()) {
    text = nullptr;
    for (const json& entry : *found) {
      if (entry.is_object() && entry.value("name", json()) == "default") text = &entry["template"];
    }
    if (text == nullptr) return {};
  }
  if (!text->is_string()) return Fail(ErrorCode::kInvalidArgument, path + ": chat_template is not a text");
  special.chat_template = text->get<std::string>();
  special.chat_template_file = path;
  return {};
}

}  // namespace

Result<SpecialTokens> ReadSpecialTokens(const std::string& directory) {
  SpecialTokens special;
  // The later ones count more.
  for (const char* name : {"special_tokens_map.json", "tokenizer_config.json", "chat_template.json"}) {
    const std::string path = directory + "/" + name;
    const Result<json> object = ReadObject(path);
    if (!object) return Fail(object.error());
    for (const Status& status :
         {TakeToken(*object, path, "bos_token", special.bos), TakeToken(*object, path, "eos_token", special.eos),
          TakeTemplate(*object, path, special)}) {
      if (!status) return Fail(status.error());
    }
    const auto add_bos = object->find("add_bos_token");
    if (add_bos != object->end() && add_bos->is_boolean()) special.add_bos = add_bos->get<bool>();
  }
  const std::string jinja = directory + "/chat_template.jinja";
  Result<std::string> text = ReadFile(jinja);
  if (text) {
    special.chat_template = std::move(*text);
    special.chat_template_file = jinja;
  } else if (text.error().code != ErrorCode::kNotFound) {
    return Fail(text.error());
  }
  return special;
}

}  // namespace trainyard::tokenizer
