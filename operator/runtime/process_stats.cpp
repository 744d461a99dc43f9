#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "operator/runtime/metrics.h"

namespace trainyard::runtime {
namespace {

// Fields of /proc/self/stat after the program's name, which may hold spaces and brackets itself. The first is the
// third of proc(5).
struct Stat {
  double utime = 0, stime = 0, threads = 0, start_ticks = 0, virtual_bytes = 0, resident_pages = 0;
};

bool ReadStat(Stat& stat) {
  std::ifstream file("/proc/self/stat");
  std::string line;
  if (!std::getline(file, line) || line.rfind(')') == std::string::npos) return false;
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  std::string skipped;
  constexpr int kThird = 3;
  for (int field = kThird; fields; ++field) {
    switch (field) {
      case 14:
        fields >> stat.utime;
        break;
      case 15:
        fields >> stat.stime;
        break;
      case 20:
        fields >> stat.threads;
        break;
      case 22:
        fields >> stat.start_ticks;
        break;
      case 23:
        fields >> stat.virtual_bytes;
        break;
      case 24:
        fields >> stat.resident_pages;
        return static_cast<bool>(fields);
      default:
        fields >> skipped;
    }
  }
  return false;
}

// When the machine was started, seconds since the epoch.
double BootTime() {
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("btime ")) return std::stod(line.substr(6));
  }
  return 0;
}

}  // namespace

void CollectProcess(Scrape& scrape) {
  Stat stat;
  if (!ReadStat(stat)) return;
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  static const double boot_time = BootTime();
  scrape.Gauge(metric::kResidentBytes, {}, stat.resident_pages * static_cast<double>(sysconf(_SC_PAGESIZE)));
  scrape.Gauge(metric::kVirtualBytes, {}, stat.virtual_bytes);
  scrape.Counter(metric::kCpuSeconds, {}, (stat.utime + stat.stime) / ticks);
  scrape.Gauge(metric::kStartTime, {}, boot_time + stat.start_ticks / ticks);
  scrape.Gauge(metric::kThreads, {}, stat.threads);
  double fds = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end; it.increment(error)) {
    ++fds;
  }
  scrape.Gauge(metric::kOpenFds, {}, fds);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) scrape.Gauge(metric::kMaxFds, {}, static_cast<double>(limit.rlim_cur));
}

}  // namespace trainyard::runtime
