#include "operator/cli/client.h"

#include "operator/api/names.h"
#include "operator/base/files.h"

namespace trainyard::cli {
namespace {

using nlohmann::json;

std::string NameOf(const json& job) { return job.value("/metadata/name"_json_pointer, std::string()); }

ErrorCode CodeOf(int status) {
  switch (status) {
    case 404:
      return ErrorCode::kNotFound;
    case 409:
      return ErrorCode::kConflict;
    case 400:
    case 405:
    case 413:
    case 415:
    case 422:
      return ErrorCode::kInvalidArgument;
    default:
      return ErrorCode::kUnavailable;
  }
}

}  // namespace

std::string JobsPath(const std::string& ns) {
  std::string path = std::string("/apis/") + api::kApiVersion;
  if (!ns.empty()) path += "/namespaces/" + ns;
  return path + "/" + api::kPlural;
}

std::string JobPath(const std::string& ns, const std::string& name) { return JobsPath(ns) + "/" + name; }

Client::Client(std::string url, std::string gone, std::unique_ptr<http::Transport> transport)
    : url_(std::move(url)), gone_(std::move(gone)), transport_(std::move(transport)) {}

Result<Client> Client::Open(const std::string& state_dir, std::unique_ptr<http::Transport> transport) {
  const std::string path = state_dir + "/" + kEndpointFile;
  const std::string remedy = "start one with 'trainyard run JOB.yaml', or name its --state-dir";
  auto text = ReadFile(path);
  if (!text) {
    return Fail(ErrorCode::kUnavailable, "no 'trainyard run' is active in " + state_dir + "; " + remedy);
  }
  json endpoint = json::parse(*text, nullptr, false);
  if (!endpoint.is_object() || !endpoint.contains("url") || !endpoint["url"].is_string()) {
    return Fail(ErrorCode::kUnavailable, path + " is not an endpoint file; " + remedy);
  }
  std::string url = endpoint["url"];
  return Client(url, "no 'trainyard run' answers at " + url + " (from " + path + "); " + remedy, std::move(transport));
}

Result<json> Client::Call(http::Request request) {
  request.url = url_ + request.url;
  auto response = transport_->Send(request);
  if (!response) {
    return Fail(ErrorCode::kUnavailable, gone_ + " [" + response.error().message + "]");
  }
  json body = json::parse(response->body, nullptr, false);
  if (response->status >= 200 && response->status < 300 && body.is_object()) return body;
  std::string message = "answer " + std::to_string(response->status) + " of " + request.url;
  if (body.is_object() && body.contains("message") && body["message"].is_string()) message = body["message"];
  return Fail(CodeOf(response->status), message);
}

Result<std::vector<json>> Client::List() {
  auto list = Call({.method = "GET", .url = JobsPath()});
  if (!list) return Fail(list.error());
  std::vector<json> items;
  for (json& item : (*list)["items"]) items.push_back(std::move(item));
  return items;
}

Result<json> Client::Get(const std::string& name) {
  auto jobs = List();
  if (!jobs) return Fail(jobs.error());
  std::vector<std::string> names;
  for (json& job : *jobs) {
    if (NameOf(job) == name) return std::move(job);
    names.push_back(NameOf(job));
  }
  std::vector<std::string_view> views(names.begin(), names.end());
  return Fail(ErrorCode::kNotFound, "no job '" + api::Printable(name) + "'; " +
                                        (views.empty() ? "there is none" : api::Suggest(name, views)));
}

Result<json> Client::Patch(const std::string& ns, const std::string& name, const json& patch) {
  return Call({.method = "PATCH",
               .url = JobPath(ns, name),
               .headers = {{"Content-Type", "application/merge-patch+json"}},
               .body = patch.dump()});
}

}  // namespace trainyard::cli
