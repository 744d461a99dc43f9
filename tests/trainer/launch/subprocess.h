// A program under test: started with its own environment and directory, awaited with a limit, killed when the test
// ends. Also how tests wait for conditions and ask a status server. Thread-safety: one thread.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace trainyard::testing {

// A directory that is removed with the test.
class TempDir {
 public:
  TempDir() {
    std::string name = std::filesystem::temp_directory_path() / "trainyard-test-XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::string Slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

inline void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// Looks until `done` holds; false when it does not within the limit.
inline bool Await(const std::function<bool()>& done, std::chrono::seconds limit = std::chrono::seconds(60)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
  }
  return true;
}

class Subprocess {
 public:
  using Environment = std::map<std::string, std::string>;

  // Standard error and output go to `log`.
  Subprocess(const std::vector<std::string>& command, const Environment& environment, std::string log)
      : log_(std::move(log)) {
    std::vector<std::string> lines;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string line(*entry);
      if (environment.count(line.substr(0, line.find('='))) == 0) lines.push_back(line);
    }
    for (const auto& [name, value] : environment) lines.push_back(name + "=" + value);
    std::vector<char*> argv, envp;
    for (const auto& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    for (auto& line : lines) envp.push_back(line.data());
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    const int fd = open(log_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(fd, STDOUT_FILENO);
      dup2(fd, STDERR_FILENO);
      execve(argv[0], argv.data(), envp.data());
      _exit(127);
    }
    close(fd);
  }
  ~Subprocess() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Subprocess(const Subprocess&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal_number) const { kill(pid_, signal_number); }
  bool Running() {
    if (pid_ <= 0) return false;
    if (waitpid(pid_, &status_, WNOHANG) != pid_) return true;
    pid_ = -1;
    return false;
  }
  // Exit code, 128 + signal, or -1 when it does not end within the limit.
  int Wait(std::chrono::seconds limit = std::chrono::seconds(60)) {
    if (!Await([this] { return !Running(); }, limit)) {
      ADD_FAILURE() << "still running after " << limit.count() << " s: " << Slurp(log_);
      return -1;
    }
    return WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_);
  }
  std::string Log() const { return Slurp(log_); }

 private:
  std::string log_;
  pid_t pid_ = -1;
  int status_ = 0;
};

// One request over a connection of its own; "" when nobody listens.
inline std::string HttpAsk(int port, const std::string& method, const std::string& target,
                           const std::string& token = "") {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    const std::string request = method + " " + target + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" +
                                (token.empty() ? "" : "Authorization: Bearer " + token + "\r\n") +
                                "Content-Length: 0\r\n\r\n";
    send(fd, request.data(), request.size(), MSG_NOSIGNAL);
    char buffer[4096];
    ssize_t n;
    while ((n = recv(fd, buffer, sizeof buffer, 0)) > 0) answer.append(buffer, static_cast<size_t>(n));
  }
  close(fd);
  return answer;
}

inline std::string HttpBody(const std::string& answer) {
  const size_t end = answer.find("\r\n\r\n");
  return end == std::string::npos ? "" : answer.substr(end + 4);
}

}  // namespace trainyard::testing
