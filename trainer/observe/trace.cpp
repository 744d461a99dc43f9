#include "trainer/observe/trace.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace trainyard::observe {

void Trace::Span(std::string name, const char* category, Time begin, Time end, int64_t bytes) {
  if (on()) Add({std::move(name), category, begin, end, bytes, false});
}

void Trace::Collective(std::string name, Time begin, Time end, int64_t bytes) {
  if (on()) Add({std::move(name), "collective", begin, end, bytes, true});
}

void Trace::Add(Event event) {
  std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
}

std::string Trace::Finish(std::chrono::system_clock::time_point wall, Time steady) {
  using Microseconds = std::chrono::duration<double, std::micro>;
  on_.store(false, std::memory_order_relaxed);
  std::vector<Event> events;
  {
    std::lock_guard lock(mutex_);
    events.swap(events_);
  }
  const auto at = [&](Time time) {
    return Microseconds(wall.time_since_epoch()).count() + Microseconds(time - steady).count();
  };
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  const auto name = [&](const char* what, int64_t thread, const std::string& text) {
    list.push_back({{"name", what}, {"ph", "M"}, {"pid", process_}, {"tid", thread}, {"args", {{"name", text}}}});
  };
  name("process_name", 0, "rank " + std::to_string(process_));
  name("thread_name", 0, "training");
  name("thread_name", 1, "collectives");
  int64_t id = 0;
  for (const Event& event : events) {
    nlohmann::ordered_json json = {{"name", event.name}, {"cat", event.category}, {"pid", process_}};
    if (event.bytes > 0) json["args"] = {{"bytes", event.bytes}};
    json["ts"] = at(event.begin);
    json["tid"] = event.overlaps ? 1 : 0;
    if (!event.overlaps) {
      json["ph"] = "X";
      json["dur"] = Microseconds(event.end - event.begin).count();
      list.push_back(std::move(json));
      continue;
    }
    json["id"] = ++id;
    json["ph"] = "b";
    list.push_back(json);
    json["ph"] = "e";
    json["ts"] = at(event.end);
    json.erase("args");
    list.push_back(std::move(json));
  }
  const nlohmann::ordered_json document = {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(list)}};
  return document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace trainyard::observe
