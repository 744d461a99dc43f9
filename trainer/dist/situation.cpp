#include "trainer/dist/situation.h"

#include <cstdio>
#include <sstream>
#include <vector>

namespace trainyard::dist {
namespace {

std::string Plain(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return text;
}

}  // namespace

std::string ToLine(const Situation& s) {
  std::ostringstream line;
  line << static_cast<int>(s.kind) << '\t' << s.sequence << '\t' << s.signature << '\t' << s.waiting_for << '\t'
       << s.milliseconds << '\t' << Plain(s.group_id) << '\t' << Plain(s.group_name) << '\t' << Plain(s.text);
  return line.str();
}

std::optional<Situation> FromLine(const std::string& line) {
  Situation s;
  int kind = -1;
  std::istringstream in(line);
  in >> kind >> s.sequence >> s.signature >> s.waiting_for >> s.milliseconds;
  if (!in || kind < 0 || kind > static_cast<int>(Situation::Kind::kOutside) || in.get() != '\t') return std::nullopt;
  s.kind = static_cast<Situation::Kind>(kind);
  if (!std::getline(in, s.group_id, '\t') || !std::getline(in, s.group_name, '\t')) return std::nullopt;
  std::getline(in, s.text);
  return s;
}

std::string Seconds(int64_t milliseconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", static_cast<double>(milliseconds) / 1000);
  return text;
}

std::string Tell(int rank, const Situation& s) {
  const std::string who = "rank " + std::to_string(rank);
  switch (s.kind) {
    case Situation::Kind::kFailed:
      return s.text;
    case Situation::Kind::kCall:
      return who + " has not come: it has been in " + s.text + " of group " + s.group_name + " for " +
             Seconds(s.milliseconds);
    case Situation::Kind::kOutside:
      return who + " has not come: it has been outside of any call for " + Seconds(s.milliseconds) +
             (s.text.empty() ? ", before its first one" : ", after " + s.text);
  }
  return who;
}

}  // namespace trainyard::dist
