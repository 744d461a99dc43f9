// Talks to the API that `trainyard run` serves while it runs. Thread-safety: one thread per client.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/api/training_job.h"
#include "operator/base/error.h"
#include "operator/http/transport.h"

namespace trainyard::cli {

// A running `trainyard run` writes this file into its state directory.
inline constexpr const char* kEndpointFile = "endpoint.json";
// Path of all jobs, of the jobs of a namespace, of one job.
std::string JobsPath(const std::string& ns = "");
std::string JobPath(const std::string& ns, const std::string& name);

class Client {
 public:
  // Reads the endpoint file. Errors: kUnavailable when there is none.
  static Result<Client> Open(const std::string& state_dir, std::unique_ptr<http::Transport> transport);

  // The jobs that are served, as Kubernetes objects. Errors: kUnavailable when nobody answers.
  Result<std::vector<nlohmann::json>> List();
  // The job of that name, in any namespace. Error: kNotFound, with the names that exist.
  Result<nlohmann::json> Get(const std::string& name);
  // Merge patch. Errors: kInvalidArgument with the server's words when it refuses the patch; kNotFound.
  Result<nlohmann::json> Patch(const std::string& ns, const std::string& name, const nlohmann::json& patch);

 private:
  Client(std::string url, std::string gone, std::unique_ptr<http::Transport> transport);
  Result<nlohmann::json> Call(http::Request request);

  std::string url_;
  std::string gone_;  // what to say when nobody answers
  std::unique_ptr<http::Transport> transport_;
};

}  // namespace trainyard::cli
