// Made-up clusters as an API server would list them: for the tests of `trainyard top`, and for the documentation, which
// shows what the commands print of them. Thread-safety: pure functions.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "operator/base/clock.h"
#include "tests/operator/cli/top/listed_objects.h"

namespace trainyard::cli {

// "2026-03-02T12:00:00Z"
TimePoint SceneTime();

using Labels = std::map<std::string, std::string>;

// A ready node. `gpus` are allocatable; beside them it has 128 CPUs and 2 TiB of memory.
nlohmann::json NodeObject(const std::string& name, const std::string& product, int64_t gpus, Labels labels = {});
// A running pod of someone else.
nlohmann::json PodObject(const std::string& ns, const std::string& name, const std::string& node, int64_t gpus);
// A job that trains on `nodes` with as many GPUs of each since `hours` ago, saved half an hour ago, with that much
// left.
nlohmann::json RunningJob(const std::string& ns, const std::string& name, const std::vector<std::string>& nodes,
                          int64_t per_node, const std::string& product, double hours, double hours_left);
// A job that was created so many hours ago, is planned for that, and holds nothing.
nlohmann::json WaitingJob(const std::string& ns, const std::string& name, int64_t gpus, int64_t per_node,
                          const std::string& product, double hours, const std::string& priority_class = "");
nlohmann::json PriorityClassObject(const std::string& name, int64_t value);

// The one of docs/examples/placement.md: three racks of four H100 nodes in two halls, a rack of GB200 trays, two L4
// nodes and some that take no gang; two jobs and a notebook hold GPUs, two jobs wait.
ListedObjects SceneOfTheDocs();
// `racks` racks of `per_rack` H100 nodes, every third rack partly used, one node in a hundred cordoned.
ListedObjects LargeScene(int racks, int per_rack);

}  // namespace trainyard::cli
