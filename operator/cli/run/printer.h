// Prints the story of a run: lines with the time since the start, under a live line on a terminal; or JSON lines.
// Thread-safety: one thread.
#pragma once

#include <iosfwd>
#include <string>

#include "operator/base/clock.h"
#include "operator/cli/run/narrator.h"

namespace trainyard::cli {

struct Console {
  std::ostream& out;
  std::ostream& err;
  bool live = false;  // `out` is a terminal: show a live line
  size_t width = 80;  // of the terminal
};

class Printer {
 public:
  Printer(Console console, bool json, TimePoint start) : console_(console), json_(json), start_(start) {}
  // Clears the live line.
  ~Printer();

  void Event(const StoryEvent& event, TimePoint now);
  // Something for people only; nothing with JSON.
  void Note(const std::string& text, TimePoint now);
  // One line on the error stream.
  void Problem(const std::string& text);
  // Replaces the live line, cut to the terminal; nothing without one.
  void Live(const std::string& text);

 private:
  void Clear();

  Console console_;
  bool json_;
  TimePoint start_;
  std::string shown_;  // the live line
};

}  // namespace trainyard::cli
