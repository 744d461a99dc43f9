#include "tests/cluster/gangs/audit_log.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>

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

// By the object that a write left. A pod that is deleted without grace (unbound, ended, or by force) is gone with the
// call, and any object that is marked so far and is written once more; others vanish later.
bool GoneAtOnce(const AuditWrite& write) {
  const json& meta = write.object.contains("metadata") ? write.object["metadata"] : write.object;
  if (meta.contains("finalizers") && !meta["finalizers"].empty()) return false;
  if (write.verb == "delete" && write.resource != "pods") return true;
  const int64_t no_grace = write.verb == "delete" ? -1 : 0;  // that it does not tell
  return meta.contains("deletionTimestamp") && meta.value("deletionGracePeriodSeconds", no_grace) == 0;
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
  const std::string stage = event.value("stage", "");
  if ((stage != "ResponseComplete" && stage != "Panic") || !verbs.contains(event.value("verb", ""))) return false;
  if (event.value("requestURI", "").find("dryRun=") != std::string::npos) return false;
  return event.contains("objectRef") && resources.contains(event["objectRef"].value("resource", ""));
}

// A request whose client went away ends with 504 when it was under way, and as 200 without an object ("connection
// closed early") when nothing was answered; a server that panics breaks off in the middle.
Outcome OutcomeOf(const json& event, int code) {
  constexpr int kRequestTimeout = 408, kClientClosedRequest = 499;
  if (event.value("stage", "") == "Panic") return Outcome::kUnknown;
  if (code / 100 == 2) return event.contains("responseObject") ? Outcome::kDone : Outcome::kUnknown;
  const bool refused = code / 100 == 4 && code != kRequestTimeout && code != kClientClosedRequest;
  return refused ? Outcome::kRefused : Outcome::kUnknown;
}

std::string Unescape(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escaped = text[i] == '%' && i + 2 < text.size();
    plain += escaped ? static_cast<char>(std::strtol(text.substr(i + 1, 2).c_str(), nullptr, 16)) : text[i];
    i += escaped ? 2 : 0;
  }
  return plain;
}

// The equalities of the label selector. What it asks besides is left out: then it means more than it does.
std::map<std::string, std::string> LabelsIn(const std::string& uri) {
  constexpr std::string_view kParameter = "labelSelector=";
  const size_t begin = uri.find(kParameter);
  if (begin == std::string::npos) return {};
  const size_t from = begin + kParameter.size();
  std::map<std::string, std::string> labels;
  std::istringstream selector(Unescape(uri.substr(from, uri.find('&', from) - from)));
  for (std::string term; std::getline(selector, term, ',');) {
    const size_t equals = term.find('=');
    if (equals == std::string::npos || equals == 0 || term[equals - 1] == '!') continue;
    labels[term.substr(0, equals)] = term.substr(term.find_last_of('=') + 1);
  }
  return labels;
}

void TakeCollection(const json& event, const Placed& collection, std::vector<Placed>* all) {
  const json answer = event.value("responseObject", json::object());
  for (const json& item : answer.value("items", json::array())) {
    Placed one = collection;
    one.early = true;
    // They were listed at this version, and deleted after it.
    if (const int64_t listed = RevisionOf(answer); listed > 0) one.place = {listed, 1};
    AuditWrite& write = one.write;
    write.object = item;
    write.name = cluster::KeyOf(item).name, write.uid = cluster::UidOf(item);
    write.listed = true;
    write.removed = write.resource != "pods" ||
                    GoesAtOnce(item, event.value("requestObject", json::object()), event.value("requestURI", ""));
    all->push_back(std::move(one));
  }
}

void Take(const json& event, std::vector<Placed>* all) {
  const json& about = event["objectRef"];
  Placed placed;
  AuditWrite& write = placed.write;
  write.verb = event["verb"] == "deletecollection" ? "delete" : event["verb"];
  write.resource = about.value("resource", "");
  write.subresource = about.value("subresource", "");
  write.ns = about.value("namespace", ""), write.name = about.value("name", "");
  write.agent = event.value("userAgent", "");
  write.received = ParseMicroTime(event.value("requestReceivedTimestamp", ""));
  write.done = ParseMicroTime(event.value("stageTimestamp", ""));
  write.code = event.value("/responseStatus/code"_json_pointer, 0);
  write.outcome = OutcomeOf(event, write.code);
  if (write.outcome == Outcome::kDone && event["verb"] == "deletecollection") return TakeCollection(event, placed, all);
  const json answer = event.value("responseObject", json::object());
  const json asked = event.value("requestObject", json::object());
  if (write.outcome != Outcome::kDone) {
    if (asked.is_object() && write.name.empty()) write.name = asked.value("/metadata/name"_json_pointer, "");
    if (write.outcome == Outcome::kUnknown) {
      placed.early = true;
      if (asked.is_object() && (write.verb == "create" || write.verb == "update")) write.object = asked;
      if (event["verb"] == "deletecollection") write.labels = LabelsIn(event.value("requestURI", ""));
    }
    return all->push_back(std::move(placed));
  }
  if (write.subresource == "binding" || write.subresource == "eviction") {
    write.object = asked;
    return all->push_back(std::move(placed));
  }
  write.object = answer;
  if (write.name.empty()) write.name = cluster::KeyOf(answer).name;
  write.uid = cluster::UidOf(answer);
  write.version = RevisionOf(answer);
  if (write.verb == "delete" && answer.value("kind", "") == "Status") {
    // Some are told of what they deleted by name and UID alone.
    write.uid = answer.value("/details/uid"_json_pointer, "");
    write.removed = true;
  } else {
    write.removed = GoneAtOnce(write);
  }
  placed.place = {write.version, 0};
  placed.early = write.version == 0;
  all->push_back(std::move(placed));
}

}  // namespace

bool AuditWrite::Concerns(const std::string& full_name, const std::map<std::string, std::string>& borne) const {
  if (!name.empty()) return full_name == ns + "/" + name;
  return full_name.starts_with(ns + "/") && std::all_of(labels.begin(), labels.end(), [&borne](const auto& label) {
           const auto found = borne.find(label.first);
           return found != borne.end() && found->second == label.second;
         });
}

std::string AuditWrite::Line() const {
  const json about = object.is_object() ? object : json::object();
  const auto told = [&about](const char* pointer) { return about.value(json::json_pointer(pointer), ""); };
  std::string line = fmt::format("{:.3f} {}{}{} by {}: {}", done, verb, subresource.empty() ? "" : " ", subresource,
                                 agent.substr(0, agent.find(' ')), code);
  if (outcome == Outcome::kUnknown) line += ", may have happened";
  if (version > 0) line += fmt::format(", version {}", version);
  if (const std::string node = told("/spec/nodeName") + told("/target/name"); !node.empty()) line += ", on " + node;
  if (const std::string phase = told("/status/phase"); !phase.empty()) line += ", " + phase;
  if (listed) line += ", as it was listed";
  const json grace = about.value("/metadata/deletionGracePeriodSeconds"_json_pointer, json());
  if (grace.is_number()) line += ", being deleted with a grace of " + grace.dump();
  return line + (removed ? ", gone" : "");
}

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
