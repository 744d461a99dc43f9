#include "operator/cli/validate_command.h"

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "operator/cli/exit_codes.h"
#include "operator/cli/job_file.h"

namespace trainyard::cli {
namespace {

int RunValidate(const std::vector<std::string>& paths, std::ostream& out, std::ostream& err) {
  bool good = true;
  for (const std::string& path : paths) {
    JobFile file = LoadJobFile(path);
    for (const std::string& error : file.errors) err << "trainyard: " << error << "\n";
    good = good && file.errors.empty();
    if (!file.errors.empty()) continue;
    for (const api::TrainingJob& job : file.jobs) out << path << ": TrainingJob " << job.meta.name << " is valid\n";
  }
  return good ? kExitOk : kExitBadInput;
}

}  // namespace

void AddValidateCommand(CLI::App& app, int& exit_code, std::ostream& out, std::ostream& err) {
  auto paths = std::make_shared<std::vector<std::string>>();
  CLI::App* validate = app.add_subcommand("validate", "Say everything that is wrong with TrainingJob files");
  validate->add_option("FILE", *paths, "YAML or JSON files; - reads standard input")->required();
  validate->callback([paths, &exit_code, &out, &err] { exit_code = RunValidate(*paths, out, err); });
}

}  // namespace trainyard::cli
