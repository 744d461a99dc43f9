#include "operator/cli/run/printer.h"

#include <cstdio>
#include <ostream>

namespace trainyard::cli {
namespace {

// Messages may quote a program's own words: they must neither break the line nor steer the terminal.
std::string OneLine(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return text;
}

}  // namespace

Printer::~Printer() { Clear(); }

void Printer::Clear() {
  if (shown_.empty()) return;
  console_.out << "\r\033[K" << std::flush;
  shown_.clear();
}

void Printer::Event(const StoryEvent& event, TimePoint now) {
  if (!json_) {
    Note(event.text, now);
    return;
  }
  nlohmann::json line = event.fields;
  line["event"] = event.kind;
  line["time"] = FormatTime(now, true);
  line["text"] = event.text;
  console_.out << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n" << std::flush;
}

void Printer::Note(const std::string& text, TimePoint now) {
  if (json_) return;
  const std::string live = shown_;
  Clear();
  char time[32];
  std::snprintf(time, sizeof(time), "[%7.1fs] ", static_cast<double>((now - start_).count()) / 1000);
  console_.out << time << OneLine(text) << "\n" << std::flush;
  Live(live);
}

void Printer::Problem(const std::string& text) {
  Clear();
  console_.err << "trainyard: " << OneLine(text) << "\n" << std::flush;
}

void Printer::Live(const std::string& whole) {
  const std::string text = whole.substr(0, console_.width);
  if (!console_.live || json_ || text == shown_) return;
  // Overwrite first, clear the rest: no flicker.
  console_.out << "\r" << OneLine(text) << "\033[K" << std::flush;
  shown_ = text;
}

}  // namespace trainyard::cli
