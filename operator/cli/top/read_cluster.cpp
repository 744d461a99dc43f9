#include "operator/cli/top/read_cluster.h"

#include <functional>
#include <utility>

#include "operator/cluster/snapshot.h"
#include "operator/controller/job_record.h"
#include "operator/placement/yard.h"

namespace trainyard::cli {
namespace {

using cluster::Kind;
using nlohmann::json;

constexpr int kPageSize = 500;
// A continue token that expires again and again means that the cluster is busier than we can list.
constexpr int kMaxListRestarts = 3;
constexpr size_t kFirstProblems = 3;

// Lists all pages of a kind. `begin` is called before the first page, again when the list has to start anew.
Status ListAll(cluster::Cluster& cluster, Kind kind, const std::function<void()>& begin,
               const std::function<void(const json&)>& take) {
  cluster::ListOptions options{.limit = kPageSize};
  begin();
  for (int restarts = 0;;) {
    const Result<cluster::ObjectList> page = cluster.List(kind, options);
    if (!page && page.error().code == ErrorCode::kGone && !options.from.empty() && ++restarts < kMaxListRestarts) {
      options.from.clear();
      begin();
      continue;
    }
    if (!page) return Fail(page.error());
    for (const cluster::Object& object : page->items) take(*object);
    if (page->next.empty()) return {};
    options.from = page->next;
  }
}

Error WithRights(const Error& error, Kind kind) {
  if (error.code != ErrorCode::kPermissionDenied) return error;
  return {error.code, "no right to list " + std::string(cluster::InfoOf(kind).plural) +
                          (kind == Kind::kNode ? "" : " of all namespaces") +
                          ": 'trainyard top' counts GPUs by node and needs `list` on nodes, pods and "
                          "trainingjobs.trainyard.dev in the whole cluster (a ClusterRole). [" +
                          error.message + "]"};
}

// Reads one kind into `out`; objects that cannot be read become one note.
template <typename T>
Status Read(
    cluster::Cluster& cluster, Kind kind, std::vector<T>& out, std::vector<std::string>& notes,
    const std::function<Result<T>(const json&)>& project,
    const std::function<bool(const T&)>& wanted = [](const T&) { return true; }) {
  std::vector<std::string> problems;
  const Status listed = ListAll(
      cluster, kind,
      [&] {
        out.clear();
        problems.clear();
      },
      [&](const json& object) {
        Result<T> item = project(object);
        if (!item) {
          problems.push_back(item.error().message);
        } else if (wanted(*item)) {
          out.push_back(*std::move(item));
        }
      });
  if (!listed) return Fail(WithRights(listed.error(), kind));
  if (problems.empty()) return {};
  const bool one = problems.size() == 1;
  const cluster::KindInfo& info = cluster::InfoOf(kind);
  std::string note = std::to_string(problems.size()) + " " + std::string(one ? info.kind : info.plural) +
                     " cannot be read and " + (one ? "is" : "are") + " left out: ";
  for (size_t i = 0; i < problems.size() && i < kFirstProblems; ++i) note += (i > 0 ? "; " : "") + problems[i];
  if (problems.size() > kFirstProblems) note += "; ...";
  notes.push_back(std::move(note));
  return {};
}

}  // namespace

Result<ClusterView> ReadCluster(cluster::Cluster& cluster) {
  ClusterView view;
  // Pods first, jobs last: a gang that starts meanwhile is seen by its claim, which is what its pods will hold.
  if (Status status =
          Read<api::PodSnapshot>(cluster, Kind::kPod, view.pods, view.notes, cluster::PodFromJson,
                                 [](const api::PodSnapshot& pod) { return placement::UseOf(pod).has_value(); });
      !status) {
    return Fail(status.error());
  }
  if (Status status = Read<api::NodeSnapshot>(cluster, Kind::kNode, view.nodes, view.notes, cluster::NodeFromJson);
      !status) {
    return Fail(status.error());
  }
  // A job that cannot be read whole may hold GPUs all the same.
  const Status jobs = Read<controller::JobRecord>(cluster, Kind::kTrainingJob, view.jobs, view.notes,
                                                  [](const json& object) -> Result<controller::JobRecord> {
                                                    controller::JobRecord record = controller::MakeJobRecord(object);
                                                    record.text.clear();
                                                    return record;
                                                  });
  if (!jobs && jobs.error().code == ErrorCode::kNotFound) {
    view.notes.push_back(
        "the cluster knows no TrainingJobs (their CRD is not installed): every GPU that is held is held by others");
  } else if (!jobs) {
    return Fail(jobs.error());
  }
  for (const controller::JobRecord& job : view.jobs) {
    if (job.problem.empty() && job.status_problem.empty()) continue;
    view.notes.push_back("job " + cluster::ToString(job.key) + " cannot be read whole and is in no queue here: " +
                         (job.problem.empty() ? job.status_problem : job.problem));
  }
  const Status classes = Read<api::PriorityClass>(cluster, Kind::kPriorityClass, view.priority_classes, view.notes,
                                                  cluster::PriorityClassFromJson);
  if (!classes && classes.error().code == ErrorCode::kPermissionDenied) {
    view.priority_classes.clear();
    view.notes.push_back("priorities are not known, and all jobs count as equal: no right to list priorityclasses");
  } else if (!classes) {
    return Fail(classes.error());
  }
  return view;
}

}  // namespace trainyard::cli
