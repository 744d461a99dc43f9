#include "tests/cluster/faults/operator_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "operator/http/transport.h"
#include "operator/local/free_port.h"

namespace trainyard::faults {

OperatorProcess::OperatorProcess(std::filesystem::path directory, std::string name)
    : directory_(std::move(directory)), name_(std::move(name)) {}

OperatorProcess::~OperatorProcess() {
  if (pid_ == 0) return;
  kill(pid_, SIGKILL);
  (void)Reap(Milliseconds(10'000));
}

Status OperatorProcess::Start(const std::string& server, const std::string& token_file,
                              const std::vector<std::string>& flags) {
  const std::filesystem::path kubeconfig = directory_ / (name_ + ".kubeconfig");
  std::ofstream(kubeconfig) << "apiVersion: v1\nkind: Config\ncurrent-context: faults\n"
                            << "clusters: [{name: proxy, cluster: {server: '" << server << "'}}]\n"
                            << "users: [{name: operator, user: {"
                            << (token_file.empty() ? "" : "tokenFile: '" + token_file + "'") << "}}]\n"
                            << "contexts: [{name: faults, context: {cluster: proxy, user: operator}}]\n";
  metrics_port_ = local::FreePort();
  probe_port_ = local::FreePort();
  std::vector<std::string> words = {std::string(TRAINYARD_BIN_DIR) + "/trainyard-operator",
                                    "--kubeconfig=" + kubeconfig.string(),
                                    "--metrics-bind-address=127.0.0.1:" + std::to_string(metrics_port_),
                                    "--health-probe-bind-address=127.0.0.1:" + std::to_string(probe_port_)};
  words.insert(words.end(), flags.begin(), flags.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const std::string log = (directory_ / (name_ + ".log")).string();
  const int fd = open(log.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return Fail(ErrorCode::kInternal, "cannot write " + log);
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  close(fd);
  return pid_ > 0 ? Status() : Fail(ErrorCode::kInternal, "cannot fork");
}

std::optional<int> OperatorProcess::Reap(Milliseconds timeout) {
  if (pid_ == 0) return std::nullopt;
  const int handle = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  pollfd waiting{handle, POLLIN, 0};
  poll(&waiting, 1, static_cast<int>(timeout.count()));
  close(handle);
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  pid_ = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool OperatorProcess::Running() {
  if (pid_ == 0) return false;
  return !Reap(Milliseconds(0));
}

std::optional<int> OperatorProcess::Terminate(Milliseconds timeout) {
  if (pid_ == 0) return std::nullopt;
  kill(pid_, SIGTERM);
  return Reap(timeout);
}

void OperatorProcess::Kill() const {
  const pid_t pid = pid_;
  if (pid == 0) return;
  kill(pid, SIGKILL);
  siginfo_t info;
  waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);  // the thread of the tests takes it away
}

std::string OperatorProcess::Log() const {
  std::ostringstream text;
  text << std::ifstream(directory_ / (name_ + ".log")).rdbuf();
  return text.str();
}

std::vector<std::string> OperatorProcess::LogLines(const std::vector<std::string>& words) const {
  std::vector<std::string> lines;
  std::istringstream log(Log());
  for (std::string line; std::getline(log, line);) {
    const auto has = [&](const std::string& word) { return line.find(word) != std::string::npos; };
    if (std::all_of(words.begin(), words.end(), has)) lines.push_back(line);
  }
  return lines;
}

OperatorProcess::Answer OperatorProcess::Probe(const std::string& path) const {
  http::Request request;
  request.url = "http://127.0.0.1:" + std::to_string(path == "/metrics" ? metrics_port_ : probe_port_) + path;
  request.timeout = Milliseconds(5'000);
  const auto response = http::NewCpprestTransport()->Send(request);
  return response ? Answer{response->status, response->body} : Answer{0, response.error().message};
}

Samples OperatorProcess::Metrics() const {
  Samples samples;
  std::istringstream text(Probe("/metrics").body);
  for (std::string line; std::getline(text, line);) {
    const size_t space = line.rfind(' ');
    if (line.empty() || line[0] == '#' || space == std::string::npos) continue;
    samples[line.substr(0, space)] = std::strtod(line.c_str() + space, nullptr);
  }
  return samples;
}

std::optional<double> OperatorProcess::Metric(const std::string& name, const std::vector<std::string>& labels) const {
  std::optional<double> sum;
  for (const auto& [series, value] : Metrics()) {
    if (series.substr(0, series.find('{')) != name) continue;
    const auto has = [&series = series](const std::string& label) { return series.find(label) != std::string::npos; };
    if (std::all_of(labels.begin(), labels.end(), has)) sum = sum.value_or(0) + value;
  }
  return sum;
}

}  // namespace trainyard::faults
