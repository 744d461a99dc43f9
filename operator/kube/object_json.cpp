#include "operator/kube/object_json.h"

#include <memory>
#include <utility>

namespace trainyard::kube {

using nlohmann::json;

namespace {

std::string ListField(const json& list, const char* field) {
  const auto metadata = list.find("metadata");
  if (metadata == list.end() || !metadata->is_object()) return {};
  const auto found = metadata->find(field);
  return found != metadata->end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

void StripManagedFields(json& object) {
  if (!object.is_object()) return;
  const auto metadata = object.find("metadata");
  if (metadata != object.end() && metadata->is_object()) metadata->erase("managedFields");
}

Result<json> ParseObject(const std::string& body, const std::string& what) {
  json object = json::parse(body, nullptr, false);
  if (!object.is_object()) {
    return Fail(ErrorCode::kInternal, what + ": the answer is no JSON object: " + body.substr(0, 120));
  }
  StripManagedFields(object);
  return object;
}

Result<cluster::ObjectList> ParseList(const std::string& body, cluster::Kind kind, const std::string& what) {
  // managedFields are half of many objects, and so of the memory that a page takes: they are never built.
  constexpr int kDepth = 4;  // list, items, item, metadata
  json list = json::parse(
      body,
      [](int depth, json::parse_event_t event, const json& parsed) {
        return event != json::parse_event_t::key || depth != kDepth || parsed != "managedFields";
      },
      false);
  if (!list.is_object()) {
    return Fail(ErrorCode::kInternal, what + ": the answer is no JSON object: " + body.substr(0, 120));
  }
  cluster::ObjectList page;
  page.resource_version = ListField(list, "resourceVersion");
  page.next = ListField(list, "continue");
  const auto items = list.find("items");
  // Go writes an empty list as null; without the key it is no list, and everything would seem to have vanished.
  if (items == list.end()) return Fail(ErrorCode::kInternal, what + ": the answer is no list");
  if (items->is_null()) return page;
  if (!items->is_array()) return Fail(ErrorCode::kInternal, what + ": the answer is no list");
  page.items.reserve(items->size());
  for (json& item : *items) {
    StripManagedFields(item);
    if (item.is_object()) {
      item.emplace("kind", cluster::InfoOf(kind).kind);
      item.emplace("apiVersion", cluster::InfoOf(kind).api_version);
    }
    page.items.push_back(std::make_shared<const json>(std::move(item)));
  }
  return page;
}

}  // namespace trainyard::kube
