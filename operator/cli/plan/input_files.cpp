#include "operator/cli/plan/input_files.h"

#include <fstream>
#include <sstream>
#include <system_error>

#include "operator/api/defaults.h"
#include "operator/api/json.h"
#include "operator/api/names.h"
#include "operator/api/validation.h"
#include "operator/api/yaml.h"

namespace trainyard::cli {
namespace {

constexpr std::uintmax_t kMostBytes = 16 << 20;  // no job, no config.json and no catalogue is larger

tl::unexpected<Error> Bad(const std::string& what) { return Fail(ErrorCode::kInvalidArgument, what); }

Result<std::string> ReadFile(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return Fail(ErrorCode::kNotFound, path.string() + ": no such file");
  if (!std::filesystem::is_regular_file(path, error)) return Bad(path.string() + ": not a file");
  if (std::filesystem::file_size(path, error) > kMostBytes) return Bad(path.string() + ": larger than 16 MiB");
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) return Fail(ErrorCode::kUnavailable, path.string() + ": cannot be read");
  return text.str();
}

}  // namespace

Result<sizing::ModelShape> ShapeFromConfigFile(std::filesystem::path path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) path /= "config.json";
  auto text = ReadFile(path);
  if (!text) return Fail(text.error());
  auto config = nlohmann::json::parse(*text, nullptr, false);
  if (config.is_discarded()) return Bad(path.string() + ": not JSON");
  auto shape = sizing::ShapeFromConfigJson(config);
  if (!shape) return Fail(shape.error().Wrap(path.parent_path().empty() ? "." : path.parent_path().string()));
  return shape;
}

Result<api::TrainingJob> ReadJobFile(const std::string& path) {
  auto text = ReadFile(path);
  if (!text) return Fail(text.error());
  auto documents = api::LoadYaml(*text, path);
  if (!documents) return Fail(documents.error());
  for (const nlohmann::json& document : *documents) {
    if (!document.is_object() || document.value("kind", nlohmann::json()) != api::kKind) continue;
    auto job = api::JobFromJson(document);
    if (!job) return Fail(job.error().Wrap(path));
    api::ApplyDefaults(*job);
    std::string problems;
    for (const std::string& problem : api::Validate(*job)) {
      problems += (problems.empty() ? "" : "\n") + path + ": " + problem;
    }
    if (!problems.empty()) return Bad(problems);
    return job;
  }
  return Bad(path + ": holds no TrainingJob");
}

Result<std::shared_ptr<const sizing::Catalogue>> ReadCatalogueFile(const std::string& path) {
  auto text = ReadFile(path);
  if (!text) return Fail(text.error());
  auto catalogue = sizing::Catalogue::FromYaml(*text, path);
  if (!catalogue) return Fail(catalogue.error());
  return std::make_shared<const sizing::Catalogue>(std::move(*catalogue));
}

}  // namespace trainyard::cli
