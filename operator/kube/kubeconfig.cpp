#include "operator/kube/kubeconfig.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include "operator/api/yaml.h"

namespace trainyard::kube {
namespace {

using nlohmann::json;

// A named entry and the file that has it.
struct Entry {
  json value;
  std::string file;
};
using Entries = std::map<std::string, Entry>;

tl::unexpected<Error> Bad(const std::string& where, const std::string& message) {
  return Fail(ErrorCode::kInvalidArgument, "kubeconfig " + where + ": " + message);
}

// Reads the string members of one entry; the first problem is kept.
class Fields {
 public:
  Fields(const Entry& entry, std::string where) : entry_(entry), where_(std::move(where)) {}

  std::string Text(const char* name) {
    const json* found = Find(name);
    if (!found) return {};
    if (!found->is_string()) {
      Problem(std::string(name) + " must be a string");
      return {};
    }
    return found->get<std::string>();
  }
  bool Flag(const char* name) {
    const json* found = Find(name);
    if (!found) return false;
    if (!found->is_boolean()) Problem(std::string(name) + " must be true or false");
    return found->is_boolean() && found->get<bool>();
  }
  // Base64 in NAME-data.
  std::string Data(const char* name) {
    const std::string text = Text(name);
    Result<std::string> decoded = DecodeBase64(text);
    if (!decoded) Problem(std::string(name) + " is not base64");
    return decoded.value_or("");
  }
  // A file name, absolute.
  std::string File(const char* name) {
    const std::string text = Text(name);
    if (text.empty() || text.front() == '/') return text;
    return (std::filesystem::path(entry_.file).parent_path() / text).lexically_normal().string();
  }
  bool Has(const char* name) { return Find(name) != nullptr; }
  void Problem(const std::string& message) {
    if (status_) status_ = Bad(entry_.file, where_ + ": " + message);
  }
  const Status& status() const { return status_; }

 private:
  const json* Find(const char* name) {
    const auto found = entry_.value.find(name);
    return found == entry_.value.end() || found->is_null() ? nullptr : &*found;
  }

  const Entry& entry_;
  const std::string where_;
  Status status_;
};

// Adds `list`: [{name: X, <inner>: {...}}, ...] of one file.
Status Collect(const json& document, const char* list, const char* inner, const std::string& file, Entries& entries) {
  const auto found = document.find(list);
  if (found == document.end() || found->is_null()) return {};
  if (!found->is_array()) return Bad(file, std::string(list) + " must be a list");
  for (const json& item : *found) {
    const auto name = item.is_object() ? item.find("name") : item.end();
    if (!item.is_object() || name == item.end() || !name->is_string()) {
      return Bad(file, std::string(list) + ": every entry needs a name");
    }
    const auto value = item.find(inner);
    const bool object = value != item.end() && value->is_object();
    if (value != item.end() && !object && !value->is_null()) {
      return Bad(file, std::string(list) + " \"" + name->get<std::string>() + "\": " + inner + " must be a map");
    }
    entries.emplace(name->get<std::string>(), Entry{object ? *value : json::object(), file});
  }
  return {};
}

Status ReadCluster(const Entry& entry, const std::string& name, Config& config) {
  Fields fields(entry, "cluster \"" + name + "\"");
  config.server = fields.Text("server");
  while (config.server.ends_with('/')) config.server.pop_back();
  if (config.server.empty()) fields.Problem("server is missing: the URL of the API server");
  if (!config.server.empty() && !config.server.starts_with("https://") && !config.server.starts_with("http://")) {
    fields.Problem("server \"" + config.server + "\" must begin with https:// or http://");
  }
  if (config.server.find("://[") != std::string::npos) {
    fields.Problem("server \"" + config.server +
                   "\": IPv6 addresses cannot be called; use a host name that resolves to it, and tls-server-name "
                   "where the certificate has another");
  }
  config.tls.ca_pem = fields.Data("certificate-authority-data");
  config.tls.ca_file = fields.File("certificate-authority");
  config.tls.server_name = fields.Text("tls-server-name");
  config.tls.insecure_skip_verify = fields.Flag("insecure-skip-tls-verify");
  if (!fields.Text("proxy-url").empty()) {
    fields.Problem("proxy-url is not supported; reach the API server directly, or through a tunnel named in server");
  }
  return fields.status();
}

Status ReadUser(const Entry& entry, const std::string& name, Config& config) {
  Fields fields(entry, "user \"" + name + "\"");
  if (fields.Has("exec") || fields.Has("auth-provider")) {
    fields.Problem(std::string(fields.Has("exec") ? "exec" : "auth-provider") +
                   " plug-ins are not run by Trainyard; put a token into the file (kubectl create token "
                   "SERVICEACCOUNT), a client certificate, or run in the cluster");
  }
  if (fields.Has("username") || fields.Has("password")) {
    fields.Problem("username and password are no longer taken by API servers; use a token or a client certificate");
  }
  config.token = fields.Text("token");
  config.token_file = fields.File("tokenFile");
  config.tls.client_certificate_pem = fields.Data("client-certificate-data");
  config.tls.client_certificate_file = fields.File("client-certificate");
  config.tls.client_key_pem = fields.Data("client-key-data");
  config.tls.client_key_file = fields.File("client-key");
  const auto& tls = config.tls;
  const bool certificate = !tls.client_certificate_pem.empty() || !tls.client_certificate_file.empty();
  const bool key = !tls.client_key_pem.empty() || !tls.client_key_file.empty();
  if (certificate != key) fields.Problem("client-certificate and client-key go together");
  return fields.status();
}

}  // namespace

Result<std::string> DecodeBase64(const std::string& text) {
  std::string clean;
  std::copy_if(text.begin(), text.end(), std::back_inserter(clean),
               [](unsigned char c) { return std::isspace(c) == 0; });
  // OpenSSL takes odd padding for granted: "=" only where it belongs, at the end.
  const size_t first_pad = clean.find('=');
  const size_t padding = first_pad == std::string::npos ? 0 : clean.size() - first_pad;
  if (clean.size() % 4 != 0 || padding > 2 || (padding == 2 && clean.back() != '=')) {
    return Fail(ErrorCode::kInvalidArgument, "not base64");
  }
  std::string bytes(clean.size() / 4 * 3, '\0');
  const int size =
      EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                      reinterpret_cast<const unsigned char*>(clean.data()), static_cast<int>(clean.size()));
  if (size < 0) return Fail(ErrorCode::kInvalidArgument, "not base64");
  bytes.resize(static_cast<size_t>(size) - padding);
  return bytes;
}

Result<Config> ParseKubeconfig(const std::vector<KubeconfigFile>& files) {
  Entries clusters;
  Entries users;
  Entries contexts;
  std::string current;
  std::string names;
  for (const KubeconfigFile& file : files) {
    names += (names.empty() ? "" : ":") + file.path;
    const auto documents = api::LoadYaml(file.text, file.path);
    if (!documents) return Fail(documents.error().Wrap("kubeconfig"));
    if (documents->empty()) continue;
    const json& document = documents->front();
    if (documents->size() > 1 || !document.is_object()) return Bad(file.path, "must hold one map");
    if (Status status = Collect(document, "clusters", "cluster", file.path, clusters); !status)
      return Fail(status.error());
    if (Status status = Collect(document, "users", "user", file.path, users); !status) return Fail(status.error());
    if (Status status = Collect(document, "contexts", "context", file.path, contexts); !status) {
      return Fail(status.error());
    }
    const auto context = document.find("current-context");
    if (context == document.end() || context->is_null()) continue;
    if (!context->is_string()) return Bad(file.path, "current-context must be a string");
    if (current.empty()) current = context->get<std::string>();
  }
  if (current.empty()) return Bad(names, "current-context is not set: kubectl config use-context NAME");
  const auto context = contexts.find(current);
  if (context == contexts.end()) return Bad(names, "current-context \"" + current + "\" is not among its contexts");
  Fields fields(context->second, "context \"" + current + "\"");
  const std::string cluster_name = fields.Text("cluster");
  const std::string user_name = fields.Text("user");
  Config config;
  config.ns = fields.Text("namespace");
  if (config.ns.empty()) config.ns = "default";
  config.source = names;
  if (!fields.status()) return Fail(fields.status().error());

  const auto cluster = clusters.find(cluster_name);
  if (cluster == clusters.end()) {
    return Bad(names, "cluster \"" + cluster_name + "\" of context \"" + current + "\" is not defined");
  }
  if (Status status = ReadCluster(cluster->second, cluster_name, config); !status) return Fail(status.error());
  if (user_name.empty()) return config;
  const auto user = users.find(user_name);
  if (user == users.end())
    return Bad(names, "user \"" + user_name + "\" of context \"" + current + "\" is not defined");
  if (Status status = ReadUser(user->second, user_name, config); !status) return Fail(status.error());
  return config;
}

}  // namespace trainyard::kube
