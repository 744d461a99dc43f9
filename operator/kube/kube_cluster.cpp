#include "operator/kube/kube_cluster.h"

#include <mutex>
#include <random>
#include <utility>

#include "operator/base/files.h"
#include "operator/kube/api_error.h"
#include "operator/kube/client.h"
#include "operator/kube/kube_watch.h"
#include "operator/kube/object_json.h"

namespace trainyard::kube {

using cluster::Kind;
using cluster::ObjectKey;
using nlohmann::json;

namespace {

// A list whose tokens always expire is a failure: the caller backs off, and nobody is held here for ever.
constexpr int kMaxListRestarts = 5;

Call MakeCall(const char* verb, const char* method, Kind kind, const ObjectKey& key) {
  Call call;
  call.verb = verb;
  call.method = method;
  call.kind = kind;
  call.ns = key.ns;
  call.name = key.name;
  return call;
}

// Bytes that are no UTF-8 (a program's last words, say) must not keep a status from being written.
std::string Dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

// Without a name the path would be that of the whole collection.
Status CheckKey(const Call& call, bool needs_name) {
  if (needs_name && call.name.empty()) {
    return Fail(ErrorCode::kInvalidArgument, call.What() + ": metadata.name is missing");
  }
  if (call.ns.empty() && cluster::InfoOf(call.kind).namespaced) {
    return Fail(ErrorCode::kInvalidArgument, call.What() + ": metadata.namespace is missing");
  }
  return {};
}

// A file that is missing is told now rather than by every call.
Status CheckFiles(const Config& config) {
  for (const std::string* file :
       {&config.tls.ca_file, &config.tls.client_certificate_file, &config.tls.client_key_file, &config.token_file}) {
    if (file->empty()) continue;
    if (const auto text = ReadFile(*file); !text) return Fail(text.error().Wrap(config.source));
  }
  return {};
}

}  // namespace

class KubeCluster::Impl {
 public:
  Impl(const Config& config, KubeOptions given)
      : options(std::move(given)),
        client(config, options),
        random(options.seed != 0 ? options.seed : std::random_device()()) {}

  Result<json> Object(const Call& call) {
    const Result<std::string> body = client.Send(call);
    if (!body) return Fail(body.error());
    return ParseObject(*body, call.What());
  }

  // Sends a whole object to its own path, or to `subresource` of it.
  Result<json> Put(Kind kind, const json& object, const char* subresource) {
    Call call = MakeCall("update", "PUT", kind, cluster::KeyOf(object));
    call.subresource = subresource;
    if (Status status = CheckKey(call, true); !status) return Fail(status.error());
    call.body = Dump(object);
    return Object(call);
  }

  Result<cluster::ObjectList> Page(Kind kind, const cluster::ListOptions& list, int limit, const std::string& from) {
    Call call = MakeCall("list", "GET", kind, {list.ns, ""});
    if (!list.label_selector.empty()) call.query.emplace_back("labelSelector", list.label_selector);
    if (limit > 0) call.query.emplace_back("limit", std::to_string(limit));
    if (!from.empty()) call.query.emplace_back("continue", from);
    const Result<std::string> body = client.Send(call);
    if (!body) return Fail(body.error());
    return ParseList(*body, kind, call.What());
  }

  std::chrono::seconds WatchTime() {
    std::lock_guard lock(mutex);
    return std::chrono::seconds(std::uniform_int_distribution<int64_t>(
        options.watch_min.count(), std::max(options.watch_min, options.watch_max).count())(random));
  }

  const KubeOptions options;
  Client client;
  std::mutex mutex;  // guards random
  std::mt19937_64 random;
};

Result<std::unique_ptr<KubeCluster>> KubeCluster::Connect(const Config& config, KubeOptions options) {
  if (config.server.empty()) return Fail(ErrorCode::kInvalidArgument, "no API server is given");
  if (Status status = CheckFiles(config); !status) return Fail(status.error());
  return std::unique_ptr<KubeCluster>(new KubeCluster(std::make_unique<Impl>(config, std::move(options))));
}

KubeCluster::KubeCluster(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KubeCluster::~KubeCluster() { Stop(); }
void KubeCluster::Stop() { impl_->client.Stop(); }

Result<std::string> KubeCluster::ServerVersion() {
  const Result<std::string> body = impl_->client.GetPath("/version");
  if (!body) return Fail(body.error());
  const Result<json> version = ParseObject(*body, "version");
  if (!version) return Fail(version.error());
  const auto found = version->find("gitVersion");
  if (found == version->end() || !found->is_string()) {
    return Fail(ErrorCode::kInternal, "version: the answer has no gitVersion: is this an API server?");
  }
  return found->get<std::string>();
}

Result<cluster::ObjectList> KubeCluster::List(Kind kind, const cluster::ListOptions& options) {
  if (options.limit > 0 || !options.from.empty()) return impl_->Page(kind, options, options.limit, options.from);
  // All of it: in pages nevertheless, which are kinder to the server.
  cluster::ObjectList all;
  for (int expired = 0;;) {
    Result<cluster::ObjectList> page = impl_->Page(kind, options, impl_->options.page_size, all.next);
    if (!page && page.error().code == ErrorCode::kGone && !all.next.empty() && ++expired < kMaxListRestarts) {
      all = {};  // the token has expired: from the first page
      continue;
    }
    if (!page) return page;
    all.items.insert(all.items.end(), page->items.begin(), page->items.end());
    all.resource_version = page->resource_version;
    all.next = page->next;
    if (all.next.empty()) return all;
  }
}

Result<json> KubeCluster::Get(Kind kind, const ObjectKey& key) {
  const Call call = MakeCall("get", "GET", kind, key);
  if (Status status = CheckKey(call, true); !status) return Fail(status.error());
  return impl_->Object(call);
}

Result<json> KubeCluster::Create(Kind kind, const json& object) {
  Call call = MakeCall("create", "POST", kind, {cluster::KeyOf(object).ns, ""});
  if (!object.is_object()) return Fail(ErrorCode::kInvalidArgument, call.What() + ": not a JSON object");
  if (Status status = CheckKey(call, false); !status) return Fail(status.error());
  call.body = Dump(object);
  Result<json> created = impl_->Object(call);
  const std::string name = cluster::KeyOf(object).name;
  if (!created && !name.empty()) return Fail(created.error().Wrap(name));
  return created;
}

Result<json> KubeCluster::Replace(Kind kind, const json& object) { return impl_->Put(kind, object, ""); }

Result<json> KubeCluster::ReplaceStatus(Kind kind, const json& object) { return impl_->Put(kind, object, "status"); }

Result<json> KubeCluster::Patch(Kind kind, const ObjectKey& key, cluster::PatchType type, const json& patch,
                                bool status) {
  Call call = MakeCall("patch", "PATCH", kind, key);
  call.subresource = status ? "status" : "";
  if (Status checked = CheckKey(call, true); !checked) return Fail(checked.error());
  call.body = Dump(patch);
  call.json_patch = type == cluster::PatchType::kJson;
  call.content_type = call.json_patch ? "application/json-patch+json" : "application/merge-patch+json";
  return impl_->Object(call);
}

Status KubeCluster::Delete(Kind kind, const ObjectKey& key, const cluster::DeleteOptions& options) {
  Call call = MakeCall("delete", "DELETE", kind, key);
  if (Status status = CheckKey(call, true); !status) return status;
  json body = {{"kind", "DeleteOptions"}, {"apiVersion", "v1"}};
  if (!options.uid.empty()) body["preconditions"]["uid"] = options.uid;
  if (!options.resource_version.empty()) body["preconditions"]["resourceVersion"] = options.resource_version;
  if (options.grace_seconds) body["gracePeriodSeconds"] = *options.grace_seconds;
  call.body = Dump(body);
  if (const auto sent = impl_->client.Send(call); !sent) return Fail(sent.error());
  return {};
}

Status KubeCluster::DeleteCollection(Kind kind, const cluster::ListOptions& options,
                                     std::optional<int64_t> grace_seconds) {
  Call call = MakeCall("deletecollection", "DELETE", kind, {options.ns, ""});
  if (Status status = CheckKey(call, false); !status) return status;
  if (!options.label_selector.empty()) call.query.emplace_back("labelSelector", options.label_selector);
  json body = {{"kind", "DeleteOptions"}, {"apiVersion", "v1"}};
  if (grace_seconds) body["gracePeriodSeconds"] = *grace_seconds;
  call.body = Dump(body);
  if (const auto sent = impl_->client.Send(call); !sent) return Fail(sent.error());
  return {};
}

Result<std::unique_ptr<cluster::Watch>> KubeCluster::Watch(Kind kind, const cluster::WatchOptions& options) {
  Call call = MakeCall("watch", "GET", kind, {options.ns, ""});
  call.query = {{"watch", "true"},
                {"allowWatchBookmarks", "true"},
                {"timeoutSeconds", std::to_string(impl_->WatchTime().count())}};
  if (!options.label_selector.empty()) call.query.emplace_back("labelSelector", options.label_selector);
  std::string from = options.from_version;
  if (from.empty()) {
    // "From now on": a watch without a version would begin with an event for everything that exists.
    const Result<cluster::ObjectList> now = impl_->Page(kind, {options.ns, options.label_selector}, 1, "");
    if (!now) return Fail(now.error());
    from = now->resource_version;
  }
  call.query.emplace_back("resourceVersion", from);
  Result<std::shared_ptr<http::Stream>> stream = impl_->client.Open(call);
  if (!stream) return Fail(stream.error());
  return std::make_unique<KubeWatch>(*std::move(stream), call.What(), impl_->options.watch_idle,
                                     impl_->options.max_event_bytes);
}

}  // namespace trainyard::kube
