// Files as text, for the tests of this room. Thread-safety: free functions.
#pragma once

#include <fstream>
#include <sstream>
#include <string>

namespace trainyard::checkpoint {

// The bytes of a file; empty where there is none.
inline std::string Text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}
inline void Write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

}  // namespace trainyard::checkpoint
