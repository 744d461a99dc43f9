// What the benchmarks of the operator have in common: their command line, what stops them, and what becomes of the
// rows. Thread-safety: one thread.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "operator/base/error.h"
#include "tests/bench/report.h"

namespace trainyard::bench {

// A benchmark that cannot go on throws; BenchMain prints what was measured before.
inline void Must(const Status& status, const std::string& what) {
  if (!status) throw std::runtime_error(what + ": " + status.error().message);
}
template <typename T>
T Must(Result<T> result, const std::string& what) {
  if (!result) throw std::runtime_error(what + ": " + result.error().message);
  return std::move(*result);
}

struct Arguments {
  std::string json_file, program = TRAINYARD_BIN_DIR "/trainyard-operator";
  std::set<std::string> rows;  // to be measured
  std::vector<std::string> operator_flags;

  bool Want(std::initializer_list<const char*> any) const {
    for (const char* row : any) {
      if (rows.contains(row)) return true;
    }
    return false;
  }
};

// Reads the command line, measures, prints a table and, with --json, puts the rows into a file, where rows of other
// names stay. `rows` are all that the program knows, and measured where --rows names none; `numbers` are options of its
// own, by their name. Returns the exit status: that of a failure when `measure` threw.
int BenchMain(int argc, char** argv, const std::string& about, const std::set<std::string>& rows,
              const std::map<std::string, int*>& numbers,
              const std::function<void(const Arguments&, std::vector<Row>&)>& measure);

}  // namespace trainyard::bench
