#include "operator/cli/run/job_api.h"

#include <vector>

#include "operator/api/defaults.h"
#include "operator/api/json.h"
#include "operator/api/names.h"
#include "operator/api/validation.h"
#include "operator/cli/client.h"

namespace trainyard::cli {
namespace {

using cluster::Kind;
using nlohmann::json;

// Deep enough for any TrainingJob; merging is recursive.
constexpr int kMaxPatchDepth = 32;

http::Response Answer(int status, const json& body) {
  return http::Response::Json(status, body.dump(-1, ' ', false, json::error_handler_t::replace));
}

http::Response Refuse(int status, const char* reason, const std::string& message) {
  return Answer(status, {{"apiVersion", "v1"},
                         {"kind", "Status"},
                         {"status", "Failure"},
                         {"reason", reason},
                         {"message", message},
                         {"code", status}});
}

http::Response Refuse(const Error& error) {
  switch (error.code) {
    case ErrorCode::kNotFound:
      return Refuse(404, "NotFound", error.message);
    case ErrorCode::kConflict:
      return Refuse(409, "Conflict", error.message);
    case ErrorCode::kInvalidArgument:
      return Refuse(422, "Invalid", error.message);
    default:
      return Refuse(500, "InternalError", error.message);
  }
}

int Depth(const json& value) {
  // Level by level, since the text may nest as deep as it is long.
  std::vector<const json*> level = {&value};
  int depth = 0;
  while (!level.empty() && depth <= kMaxPatchDepth) {
    std::vector<const json*> next;
    for (const json* node : level) {
      if (!node->is_structured()) continue;
      for (const json& child : *node) next.push_back(&child);
    }
    level = std::move(next);
    ++depth;
  }
  return depth;
}

// What is wrong with the job `after` in place of `before`; empty: nothing.
std::vector<std::string> ErrorsOf(const json& before, const json& after) {
  std::vector<std::string> errors;
  if (cluster::KeyOf(before) != cluster::KeyOf(after)) errors.push_back("metadata: name and namespace cannot change");
  api::TrainingJob job = api::ReadJob(after, errors);
  if (!errors.empty()) return errors;
  api::ApplyDefaults(job);
  errors = api::Validate(job);
  auto old_job = api::JobFromJson(before);
  if (!old_job) return {old_job.error().message};
  if (api::IsTerminal(old_job->status.phase)) {
    errors.push_back("the job is " + std::string(api::ToString(old_job->status.phase)) + " and cannot change any more");
  }
  for (std::string& error : api::ValidateUpdate(*old_job, job)) errors.push_back(std::move(error));
  return errors;
}

http::Response List(cluster::Cluster& cluster, const std::string& ns) {
  auto list = cluster.List(Kind::kTrainingJob, {.ns = ns});
  if (!list) return Refuse(list.error());
  json items = json::array();
  for (const cluster::Object& item : list->items) items.push_back(*item);
  return Answer(200, {{"apiVersion", api::kApiVersion},
                      {"kind", "TrainingJobList"},
                      {"metadata", {{"resourceVersion", list->resource_version}}},
                      {"items", std::move(items)}});
}

http::Response Patch(cluster::Cluster& cluster, const cluster::ObjectKey& key, const http::Request& request) {
  if (!request.Header("Content-Type").starts_with("application/merge-patch+json")) {
    return Refuse(415, "UnsupportedMediaType", "Content-Type must be application/merge-patch+json");
  }
  const json patch = json::parse(request.body, nullptr, false);
  if (!patch.is_object()) return Refuse(400, "BadRequest", "the body is not a JSON object");
  if (Depth(patch) > kMaxPatchDepth) return Refuse(400, "BadRequest", "the body nests too deep");
  // Another writer may come in between: the controller writes status all the time.
  while (true) {
    auto before = cluster.Get(Kind::kTrainingJob, key);
    if (!before) return Refuse(before.error());
    json after = *before;
    after.merge_patch(patch);
    std::string message;
    for (const std::string& error : ErrorsOf(*before, after)) message += (message.empty() ? "" : "; ") + error;
    if (!message.empty()) return Refuse(422, "Invalid", key.name + ": " + message);
    after["metadata"]["resourceVersion"] = cluster::ResourceVersionOf(*before);
    auto stored = cluster.Replace(Kind::kTrainingJob, after);
    if (stored) return Answer(200, *stored);
    if (stored.error().code != ErrorCode::kConflict) return Refuse(stored.error());
  }
}

// "/apis/.../namespaces/NS/trainingjobs/NAME" -> {NS, NAME}; either may be empty. Nothing for other paths.
std::optional<cluster::ObjectKey> ParsePath(std::string_view path) {
  if (path == JobsPath()) return cluster::ObjectKey{};
  const std::string prefix = std::string("/apis/") + api::kApiVersion + "/namespaces/";
  if (!path.starts_with(prefix)) return std::nullopt;
  path.remove_prefix(prefix.size());
  const size_t slash = path.find('/');
  if (slash == 0 || slash == std::string_view::npos) return std::nullopt;
  cluster::ObjectKey key{std::string(path.substr(0, slash)), ""};
  path.remove_prefix(slash + 1);
  const std::string jobs = std::string(api::kPlural) + "/";
  if (path == api::kPlural) return key;
  if (!path.starts_with(jobs) || path.find('/', jobs.size()) != std::string_view::npos) return std::nullopt;
  key.name = std::string(path.substr(jobs.size()));
  return key;
}

}  // namespace

http::Handler MakeJobApi(cluster::Cluster& cluster) {
  return [&cluster](const http::Request& request) {
    const std::string path = request.Path();
    auto key = ParsePath(path);
    if (!key) return Refuse(404, "NotFound", "no such path: " + api::Printable(path));
    if (request.method == "GET" && key->name.empty()) return List(cluster, key->ns);
    if (request.method == "GET") {
      auto job = cluster.Get(Kind::kTrainingJob, *key);
      return job ? Answer(200, *job) : Refuse(job.error());
    }
    if (request.method == "PATCH" && !key->name.empty()) return Patch(cluster, *key, request);
    return Refuse(405, "MethodNotAllowed", "GET and PATCH of a job, GET of the list");
  };
}

}  // namespace trainyard::cli
