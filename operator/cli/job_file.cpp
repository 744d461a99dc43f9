#include "operator/cli/job_file.h"

#include <iostream>
#include <iterator>

#include "operator/api/defaults.h"
#include "operator/api/json.h"
#include "operator/api/validation.h"
#include "operator/api/yaml.h"
#include "operator/base/files.h"

namespace trainyard::cli {
namespace {

Result<std::string> ReadText(const std::string& path) {
  if (path != "-") return ReadFile(path);
  return std::string(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
}

}  // namespace

JobFile LoadJobFile(const std::string& path, const AdjustJob& adjust) {
  JobFile file;
  auto text = ReadText(path);
  if (!text) {
    file.errors.push_back(text.error().message);
    return file;
  }
  const std::string name = path == "-" ? "standard input" : path;
  auto documents = api::LoadYaml(*text, name);
  if (!documents) {
    file.errors.push_back(documents.error().message);
    return file;
  }
  if (documents->empty()) file.errors.push_back(name + ": holds no TrainingJob");
  for (size_t i = 0; i < documents->size(); ++i) {
    std::string where = name + ": ";
    if (documents->size() > 1) where += "document " + std::to_string(i + 1) + ": ";
    std::vector<std::string> errors;
    api::TrainingJob job = api::ReadJob((*documents)[i], errors);
    api::ApplyDefaults(job);
    if (errors.empty() && adjust) adjust(job, errors);
    // What could not be read has its default now, which would only draw errors that follow from the first ones.
    if (errors.empty()) errors = api::Validate(job);
    for (const std::string& error : errors) file.errors.push_back(where + error);
    file.jobs.push_back(std::move(job));
  }
  return file;
}

}  // namespace trainyard::cli
