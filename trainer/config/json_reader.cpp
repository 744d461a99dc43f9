#include "trainer/config/json_reader.h"

#include <cmath>
#include <sstream>

namespace trainyard::config {

using nlohmann::json;

namespace {

std::string Brief(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

}  // namespace

std::string Show(const json& value) {
  if (value.is_object()) {
    return "an object";
  }
  if (value.is_array()) {
    return "an array";
  }
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

JsonReader::JsonReader(const json* value, std::string path, Problems& problems)
    : value_(value), path_(std::move(path)), problems_(problems) {
  if (value_ != nullptr && !value_->is_object()) {
    problems_.push_back((path_.empty() ? "the document" : path_) + ": " + Show(*value_) + " is not an object");
    value_ = nullptr;
  }
}

std::string JsonReader::Path(std::string_view key) const {
  return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
}

void JsonReader::Add(std::string_view key, const std::string& problem) {
  problems_.push_back(Path(key) + ": " + problem);
}

const json* JsonReader::Take(const char* key, bool optional, const char* kind) {
  asked_.insert(key);
  if (value_ == nullptr) {
    return nullptr;  // reported where the object itself was missing
  }
  const auto found = value_->find(key);
  if (found == value_->end()) {
    if (!optional) {
      Add(key, std::string("missing; give ") + kind);
    }
    return nullptr;
  }
  return &*found;
}

int64_t JsonReader::Int(const char* key, int64_t min, int64_t max, std::optional<int64_t> fallback) {
  const json* value = Take(key, fallback.has_value(), "a whole number");
  if (value == nullptr) {
    return fallback.value_or(min);
  }
  if (!value->is_number_integer()) {
    Add(key, Show(*value) + " is not a whole number");
    return fallback.value_or(min);
  }
  const bool huge = value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(max);
  if (huge || value->get<int64_t>() < min || value->get<int64_t>() > max) {
    Add(key, Show(*value) + " is out of range; use " + std::to_string(min) + " to " + std::to_string(max));
    return fallback.value_or(min);
  }
  return value->get<int64_t>();
}

uint64_t JsonReader::Unsigned(const char* key) {
  const json* value = Take(key, false, "a whole number");
  if (value == nullptr) {
    return 0;
  }
  if (!value->is_number_unsigned()) {
    Add(key, Show(*value) + " is not a whole number from 0 to 18446744073709551615");
    return 0;
  }
  return value->get<uint64_t>();
}

double JsonReader::Number(const char* key, double min, double max, bool above, std::optional<double> fallback) {
  const json* value = Take(key, fallback.has_value(), "a number");
  if (value == nullptr) {
    return fallback.value_or(max);
  }
  if (!value->is_number()) {
    Add(key, Show(*value) + " is not a number");
    return fallback.value_or(max);
  }
  const double number = value->get<double>();
  if (!std::isfinite(number) || number < min || (above && number == min) || number > max) {
    Add(key, Show(*value) + " is out of range; use a number " + (above ? "above " : "from ") + Brief(min) + " to " +
                 Brief(max));
    return fallback.value_or(max);
  }
  return number;
}

double JsonReader::Fraction(const char* key) {
  const json* value = Take(key, false, "a number");
  if (value == nullptr) {
    return 0;
  }
  const double number = value->is_number() ? value->get<double>() : -1;
  if (!(number >= 0 && number < 1)) {
    Add(key, Show(*value) + " is out of range; use a number from 0 to below 1");
    return 0;
  }
  return number;
}

bool JsonReader::Bool(const char* key) {
  const json* value = Take(key, false, "true or false");
  if (value != nullptr && !value->is_boolean()) {
    Add(key, Show(*value) + " is not true or false");
    return false;
  }
  return value != nullptr && value->get<bool>();
}

std::string JsonReader::String(const char* key, bool may_be_empty) {
  const json* value = Take(key, false, "a string");
  if (value == nullptr) {
    return "";
  }
  if (!value->is_string()) {
    Add(key, Show(*value) + " is not a string");
    return "";
  }
  if (value->get_ref<const std::string&>().empty() && !may_be_empty) {
    Add(key, "is empty; give a name");
  }
  return value->get<std::string>();
}

const std::string* JsonReader::EnumText(const char* key, bool optional) {
  const json* value = Take(key, optional, "a string");
  if (value == nullptr) {
    return nullptr;
  }
  if (!value->is_string()) {
    Add(key, Show(*value) + " is not a string");
    return nullptr;
  }
  return value->get_ptr<const std::string*>();
}

JsonReader JsonReader::Object(const char* key, bool optional) {
  return JsonReader(Take(key, optional, "an object"), Path(key), problems_);
}

std::optional<std::vector<const json*>> JsonReader::Array(const char* key, bool optional) {
  const json* value = Take(key, optional, "an array");
  if (value == nullptr) {
    return std::nullopt;
  }
  if (!value->is_array()) {
    Add(key, Show(*value) + " is not an array");
    return std::nullopt;
  }
  std::vector<const json*> elements;
  for (const json& element : *value) {
    elements.push_back(&element);
  }
  return elements;
}

void JsonReader::Finish() {
  if (value_ == nullptr) {
    return;
  }
  for (const auto& [key, value] : value_->items()) {
    if (!asked_.contains(key)) {
      Add(key, "unknown key; remove it, or run the trainer that belongs to this operator");
    }
  }
}

}  // namespace trainyard::config
