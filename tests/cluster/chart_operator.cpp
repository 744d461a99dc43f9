#include "tests/cluster/chart_operator.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <thread>

#include "tests/cluster/control_plane.h"

namespace trainyard::cluster_test {

Result<std::unique_ptr<ChartOperator>> ChartOperator::Start(const std::string& kubeconfig,
                                                            std::vector<std::string> flags) {
  std::vector<std::string> words = {TRAINYARD_BIN_DIR "/trainyard-operator", "--kubeconfig=" + kubeconfig};
  for (std::string& flag : flags) {
    const size_t at = flag.find("-bind-address=");
    words.push_back(at == std::string::npos ? flag : flag.substr(0, at) + "-bind-address=127.0.0.1:0");
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  std::unique_ptr<ChartOperator> started(new ChartOperator());
  started->log_ = (std::filesystem::temp_directory_path() / "trainyard-operator-XXXXXX").string();
  const int log = mkostemp(started->log_.data(), O_CLOEXEC | O_APPEND);
  if (log < 0) return Fail(ErrorCode::kInternal, started->log_ + " cannot be written");
  started->pid_ = fork();
  if (started->pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  close(log);
  if (started->pid_ < 0) return Fail(ErrorCode::kInternal, "cannot fork");
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (started->Log().find("reconciling") == std::string::npos) {
    int status = 0;
    if (waitpid(started->pid_, &status, WNOHANG) == started->pid_) {
      started->pid_ = 0;
      return Fail(ErrorCode::kInternal, "trainyard-operator has ended: " + started->Log());
    }
    if (std::chrono::steady_clock::now() > deadline) {
      return Fail(ErrorCode::kDeadlineExceeded, "trainyard-operator does not begin: " + started->Log());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return started;
}

ChartOperator::~ChartOperator() {
  // Asked first, so that it gives its lease up and the next one need not wait.
  for (int i = 0; pid_ > 0 && i <= 200; ++i) {
    if (i == 0 || i == 200) kill(pid_, i == 0 ? SIGTERM : SIGKILL);
    if (waitpid(pid_, nullptr, i < 200 ? WNOHANG : 0) == pid_) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  std::error_code ignored;  // a log that stays in the temporary directory harms nobody
  std::filesystem::remove(log_, ignored);
}

int ChartOperator::Stop() {
  int status = 0;
  kill(pid_, SIGTERM);
  waitpid(pid_, &status, 0);
  pid_ = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string ChartOperator::Log() const {
  std::ostringstream text;
  text << std::ifstream(log_).rdbuf();
  return text.str();
}

std::string ChartOperator::Metrics() const {
  const std::string log = Log();
  std::smatch address;
  if (!std::regex_search(log, address, std::regex("metrics on ([0-9.]+:[0-9]+)"))) return "";
  return RunProgram({"curl", "-s", "--max-time", "10", "http://" + address.str(1) + "/metrics"}).out;
}

}  // namespace trainyard::cluster_test
