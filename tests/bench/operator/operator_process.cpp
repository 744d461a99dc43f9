#include "tests/bench/operator/operator_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>

#include "tests/cluster/control_plane.h"

namespace trainyard::bench {

namespace {

// A port that nobody has now. Another program may take it before the operator does, which then ends and says so.
int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  bind(fd, reinterpret_cast<sockaddr*>(&address), size);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  close(fd);
  return ntohs(address.sin_port);
}

// One line of the text format: name{labels} value.
struct Series {
  std::string name, labels;
  double value = 0;
};
std::vector<Series> Parse(const std::string& text) {
  std::vector<Series> all;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t open = line.find('{'), close = line.rfind('}');
    const size_t space = line.find(' ', close == std::string::npos ? 0 : close);
    if (space == std::string::npos) continue;
    Series s;
    s.name = line.substr(0, std::min(open, space));
    if (open != std::string::npos && close != std::string::npos) s.labels = line.substr(open + 1, close - open - 1);
    s.value = std::strtod(line.c_str() + space, nullptr);
    all.push_back(std::move(s));
  }
  return all;
}

std::string LabelValue(const std::string& labels, const std::string& label) {
  const size_t at = labels.find(label + "=\"");
  if (at == std::string::npos) return "";
  const size_t from = at + label.size() + 2;
  return labels.substr(from, labels.find('"', from) - from);
}

}  // namespace

Result<std::unique_ptr<OperatorProcess>> OperatorProcess::Start(const std::string& program,
                                                                const std::string& kubeconfig,
                                                                const std::vector<std::string>& flags,
                                                                const std::string& log) {
  std::unique_ptr<OperatorProcess> process(new OperatorProcess());
  process->port_ = FreePort();
  std::vector<std::string> argv = {program};
  argv.insert(argv.end(), flags.begin(), flags.end());
  argv.push_back("--kubeconfig=" + kubeconfig);
  argv.push_back("--metrics-bind-address=127.0.0.1:" + std::to_string(process->port_));
  argv.push_back("--health-probe-bind-address=127.0.0.1:" + std::to_string(FreePort()));
  std::vector<char*> words;
  for (std::string& word : argv) words.push_back(word.data());
  words.push_back(nullptr);
  const int fd = open(log.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0644);
  process->pid_ = fork();
  if (process->pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(fd, 1);
    dup2(fd, 2);
    execv(words[0], words.data());
    _exit(127);
  }
  close(fd);
  for (int i = 0; i < 600; ++i) {
    if (process->Metric("leader_election_master_status") == 1) return process;
    if (waitpid(process->pid_, nullptr, WNOHANG) != 0) {
      process->pid_ = 0;
      return Fail(ErrorCode::kInternal, program + " has ended at its start; see " + log);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return Fail(ErrorCode::kDeadlineExceeded, program + " does not lead within 30 s; see " + log);
}

OperatorProcess::~OperatorProcess() {
  if (pid_ == 0) return;
  kill(pid_, SIGTERM);
  for (int i = 0; i < 400; ++i) {
    if (waitpid(pid_, nullptr, WNOHANG) != 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::string OperatorProcess::Scrape() const {
  return cluster_test::RunProgram({"curl", "-s", "-m", "5", "http://127.0.0.1:" + std::to_string(port_) + "/metrics"})
      .out;
}

double OperatorProcess::Metric(const std::string& name, const std::vector<std::string>& labels) const {
  double sum = 0;
  for (const Series& s : Parse(Scrape())) {
    bool fits = s.name == name;
    for (const std::string& label : labels) fits = fits && s.labels.find(label) != std::string::npos;
    if (fits) sum += s.value;
  }
  return sum;
}

std::map<std::string, double> OperatorProcess::Writes() const {
  std::map<std::string, double> writes;
  for (const Series& s : Parse(Scrape())) {
    const std::string verb = LabelValue(s.labels, "verb"), resource = LabelValue(s.labels, "resource");
    if (s.name != "rest_client_requests_total" || resource == "leases") continue;
    if (verb == "get" || verb == "list" || verb == "watch") continue;
    const std::string sub = LabelValue(s.labels, "subresource");
    writes[verb + " " + resource + (sub.empty() ? "" : "/" + sub)] += s.value;
  }
  return writes;
}

double OperatorProcess::CpuSeconds() const {
  std::ifstream in("/proc/" + std::to_string(pid_) + "/stat");
  std::string text((std::istreambuf_iterator<char>(in)), {});
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  double user = 0, system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double OperatorProcess::PeakRssMegabytes() const {
  std::ifstream in("/proc/" + std::to_string(pid_) + "/status");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::strtod(line.c_str() + 6, nullptr) * 1024 / 1e6;
  }
  return 0;
}

}  // namespace trainyard::bench
