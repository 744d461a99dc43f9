#include "tests/cluster/gangs/audit_log.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <set>
#include <utility>

#include "operator/cluster/cluster.h"

namespace trainyard::gangs {
namespace {

using nlohmann::json;

// Between two versions there is room for writes that tell none.
struct Place {
  int64_t revision = 0;
  int after = 0;
  auto operator<=>(const Place&) const = default;
};

struct Placed {
  AuditWrite write;
  Place place;
  bool early = false;  // has no version and belongs after what was done before its request; else before its answer
};

Seconds ParseMicroTime(const std::string& text) {
  std::tm tm{};
  const char* rest = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &tm);
  if (rest == nullptr) return 0;
  return static_cast<double>(timegm(&tm)) + (*rest == '.' ? std::strtod(rest, nullptr) : 0);
}

int64_t RevisionOf(const json& object) { return std::strtoll(cluster::ResourceVersionOf(object).c_str(), nullptr, 10); }

// A pod that is deleted without grace (unbound, ended, or by force) is gone with the call; others vanish later.
bool GoneAtOnce(const std::string& resource, const json& object) {
  const json& meta = object.contains("metadata") ? object["metadata"] : object;
  if (meta.contains("finalizers") && !meta["finalizers"].empty()) return false;
  return resource != "pods" || meta.value("deletionGracePeriodSeconds", int64_t{-1}) == 0;
}

// The same, of a pod as it was before the call.
bool GoesAtOnce(const json& pod, const json& options, const std::string& uri) {
  if (options.is_object() && options.value("gracePeriodSeconds", int64_t{-1}) == 0) return true;
  if (uri.ends_with("gracePeriodSeconds=0") || uri.find("gracePeriodSeconds=0&") != std::string::npos) return true;
  const std::string phase = pod.value("/status/phase"_json_pointer, "");
  return pod.value("/spec/nodeName"_json_pointer, "").empty() || phase == "Succeeded" || phase == "Failed";
}

bool OfInterest(const json& event) {
  static const std::set<std::string> verbs = {"create", "update", "patch", "delete", "deletecollection"};
  static const std::set<std::string> resources = {"pods", "nodes", "trainingjobs"};
  if (event.value("stage", "") != "ResponseComplete" || !verbs.contains(event.value("verb", ""))) return false;
  if (event.value("requestURI", "").find("dryRun=") != std::string::npos) return false;
  return event.contains("objectRef") && resources.contains(event["objectRef"].value("resource", ""));
}

void Take(const json& event, std::vector<Placed>* all) {
  const json& about = event["objectRef"];
  Placed placed;
  AuditWrite& write = placed.write;
  write.verb = event["verb"];
  write.resource = about.value("resource", "");
  write.subresource = about.value("subresource", "");
  write.ns = about.value("namespace", ""), write.name = about.value("name", "");
  write.agent = event.value("userAgent", "");
  write.received = ParseMicroTime(event.value("requestReceivedTimestamp", ""));
  write.done = ParseMicroTime(event.value("stageTimestamp", ""));
  write.code = event.value("/responseStatus/code"_json_pointer, 0);
  const json answer = event.value("responseObject", json::object());
  const json asked = event.value("requestObject", json::object());
  if (write.code / 100 != 2) {
    if (asked.is_object() && write.name.empty()) write.name = asked.value("/metadata/name"_json_pointer, "");
    all->push_back(std::move(placed));
    return;
  }
  if (write.verb == "deletecollection") {
    write.verb = "delete";
    placed.early = true;
    // They were listed at this version, and deleted after it.
    if (const int64_t listed = RevisionOf(answer); listed > 0) placed.place = {listed, 1};
    for (const json& item : answer.value("items", json::array())) {
      Placed one = placed;
      one.write.object = item;
      one.write.name = cluster::KeyOf(item).name, one.write.uid = cluster::UidOf(item);
      one.write.removed = write.resource != "pods" || GoesAtOnce(item, asked, event.value("requestURI", ""));
      if (!one.write.removed) one.write.object["metadata"]["deletionTimestamp"] = "soon";
      all->push_back(std::move(one));
    }
    return;
  }
  if (write.subresource == "binding" || write.subresource == "eviction") {
    write.object = asked;
    all->push_back(std::move(placed));
    return;
  }
  write.object = answer;
  if (write.name.empty()) write.name = cluster::KeyOf(answer).name;
  write.uid = cluster::UidOf(answer);
  if (write.verb == "delete") {
    // Some are told of what they deleted by name and UID alone.
    if (answer.value("kind", "") == "Status") {
      write.uid = answer.value("/details/uid"_json_pointer, "");
      write.removed = placed.early = true;
    } else {
      write.removed = GoneAtOnce(write.resource, answer);
    }
  }
  placed.place = {RevisionOf(answer), 0};
  placed.early = placed.early || placed.place.revision == 0;
  all->push_back(std::move(placed));
}

}  // namespace

Result<std::vector<AuditWrite>> ReadAuditLog(std::istream& log) {
  std::vector<Placed> all;
  int64_t number = 0;
  for (std::string line; std::getline(log, line);) {
    ++number;
    if (log.eof()) break;  // still being written
    const json event = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!event.is_object() || !event.contains("verb")) {
      return Fail(ErrorCode::kInvalidArgument, "line " + std::to_string(number) + " is no audit event");
    }
    if (OfInterest(event)) Take(event, &all);
  }
  // The newest version that was there at each moment.
  std::vector<std::pair<Seconds, int64_t>> newest;
  for (const Placed& one : all) {
    if (one.place.revision > 0) newest.emplace_back(one.write.done, one.place.revision);
  }
  std::sort(newest.begin(), newest.end());
  for (size_t i = 1; i < newest.size(); ++i) newest[i].second = std::max(newest[i].second, newest[i - 1].second);
  for (Placed& one : all) {
    if (one.place.revision > 0) continue;
    const Seconds when = one.early ? one.write.received : one.write.done;
    const auto later = std::upper_bound(newest.begin(), newest.end(), std::pair(when, INT64_MAX));
    one.place = {later == newest.begin() ? 0 : std::prev(later)->second, 1};
  }
  std::stable_sort(all.begin(), all.end(), [](const Placed& a, const Placed& b) { return a.place < b.place; });
  std::vector<AuditWrite> writes;
  writes.reserve(all.size());
  for (Placed& one : all) writes.push_back(std::move(one.write));
  return writes;
}

}  // namespace trainyard::gangs
