#include "tests/bench/operator/bench_main.h"

#include <cstdio>

#include <CLI/CLI.hpp>

#include "operator/http/transport.h"

namespace trainyard::bench {

int BenchMain(int argc, char** argv, const std::string& about, const std::set<std::string>& rows,
              const std::map<std::string, int*>& numbers,
              const std::function<void(const Arguments&, std::vector<Row>&)>& measure) {
  http::LoadSystemAuthoritiesOnce();
  Arguments arguments;
  arguments.rows = rows;
  CLI::App app(about);
  app.add_option("--json", arguments.json_file, "File that takes the rows; those of other names in it stay");
  app.add_option("--rows", arguments.rows, "What to measure")
      ->delimiter(',')
      ->check(CLI::IsMember(rows))
      ->capture_default_str();
  for (const auto& [name, number] : numbers) app.add_option("--" + name, *number)->capture_default_str();
  app.add_option("--operator", arguments.program, "The operator's program")->capture_default_str();
  app.add_option("--operator-flag", arguments.operator_flags,
                 "Flag for it in place of the chart's, as --operator-flag=--workers=8; may be repeated")
      ->allow_extra_args(false);
  CLI11_PARSE(app, argc, argv);

  std::vector<Row> measured;
  bool failed = false;
  try {
    measure(arguments, measured);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", argv[0], e.what());
    failed = true;
  }
  PrintTable(measured);
  // A row that is whole is worth having, whatever came after it.
  if (!arguments.json_file.empty() && !measured.empty() &&
      !WriteJson(arguments.json_file, measured, /*keep_others=*/true)) {
    std::fprintf(stderr, "%s: cannot write %s\n", argv[0], arguments.json_file.c_str());
    failed = true;
  }
  return failed ? 1 : 0;
}

}  // namespace trainyard::bench
